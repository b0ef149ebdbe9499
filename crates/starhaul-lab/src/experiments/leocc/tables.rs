//! The tables of the experiment, each declared once for the terminal, the page and its CSV file.

use starhaul_flow::Sample;
use starhaul_plot::{Column, Table, Value};

use super::{
    digest::{self, Detected, Shared, state_shares},
    results::{DetectorRow, FairnessRow, Results, Row, Share, TimeSeries},
    rivals::{Beside, QUEUE_GOAL},
    section::NO_SIGNALS,
};
use crate::{kit::columns, systems::family};

/// A run of a part.
type OfPart = (&'static str, Row);
/// A flow of those that shared a link, with its number.
type OneFlow<'a> = (&'a FairnessRow, u64, &'a Share);
/// A row of a controller without signals beside that of BBR on the same trace.
type Unaware<'a> = (&'a Row, &'a Row);

impl Results {
    /// Every run with the usual figures.
    pub(super) fn all_runs(&self) -> Table {
        let parts = [
            ("scatter", &self.rows),
            ("run", &self.runs),
            ("ablation", &self.ablation),
            ("queues", &self.queues),
            ("sensitivity", &self.sensitivity),
            ("shift", &self.shift),
            ("paths", &self.paths),
            ("unseen", &self.unseen),
        ];
        let of_part = |(part, rows): (&'static str, &Vec<Row>)| {
            rows.iter()
                .map(move |row| (part, row.clone()))
                .collect::<Vec<_>>()
        };
        Table::of(
            &run_columns(),
            &parts.into_iter().flat_map(of_part).collect::<Vec<_>>(),
        )
    }

    /// LeoCC beside each other system.
    pub(super) fn rivals(&self) -> Table {
        beside(&self.beside())
    }

    /// Who got what of a shared link.
    pub(super) fn shares(&self) -> Table {
        let figure = |key, of: fn(&OneFlow<'_>) -> f64| {
            Column::number(key, key, "", 3, move |flow: &OneFlow<'_>| of(flow).into()).digits(4)
        };
        let columns = [
            Column::name("trace", "trace", |(row, ..): &OneFlow<'_>| {
                (&row.trace).into()
            }),
            Column::count("flow", "flow", |(_, number, _): &OneFlow<'_>| {
                (*number).into()
            }),
            Column::name("system", "system", |(.., share): &OneFlow<'_>| {
                (&share.system).into()
            }),
            figure("throughput_mbps", |(.., share)| share.throughput_mbps),
            figure("jain", |(row, ..)| row.jain),
            figure("utilisation", |(row, ..)| row.utilisation),
            figure("queue_delay_mean_ms", |(row, ..)| row.queue_delay_mean_ms),
        ];
        let mut flows: Vec<OneFlow<'_>> = Vec::new();
        for row in &self.fairness {
            flows.extend(
                (1..)
                    .zip(&row.flows)
                    .map(|(number, share)| (row, number, share)),
            );
        }
        Table::of(&columns, &flows)
    }

    /// What the detector found over each trace.
    pub(super) fn detections(&self) -> Table {
        let count = |key, of: fn(&DetectorRow) -> u32| {
            Column::count(key, key, move |row: &DetectorRow| of(row).into())
        };
        let figure = |key, digits, of: fn(&DetectorRow) -> f64| {
            Column::number(key, key, "", 2, move |row: &DetectorRow| of(row).into()).digits(digits)
        };
        let columns = [
            Column::name("trace", "trace", |row: &DetectorRow| (&row.trace).into()),
            Column::name("beside", "flow beside", |row: &DetectorRow| {
                (&row.beside).into()
            }),
            Column::name("queue", "queue", |row: &DetectorRow| (&row.queue).into()),
            count("reconfigurations", |row| row.reconfigurations),
            count("found", |row| row.found),
            count("false_alarms", |row| row.false_alarms),
            figure("precision", 4, |row| row.precision),
            figure("recall", 4, |row| row.recall),
            figure("latest_ms", 2, |row| row.latest_ms),
        ];
        Table::of(&columns, &self.detector)
    }

    /// Each system over time.
    pub(super) fn series_table(&self) -> Table {
        type At<'a> = (&'a TimeSeries, &'a Sample);
        let figure = |key, digits, of: fn(&Sample) -> Option<f64>| {
            Column::number(key, key, "", 2, move |(_, sample): &At<'_>| {
                of(sample).into()
            })
            .digits(digits)
        };
        let columns = [
            Column::name("system", "system", |(series, _): &At<'_>| {
                (&series.system).into()
            }),
            Column::name("trace", "trace", |(series, _): &At<'_>| {
                (&series.trace).into()
            }),
            figure("at_s", 1, |sample| Some(sample.at_s)),
            figure("throughput_mbps", 3, |sample| Some(sample.throughput_mbps)),
            figure("capacity_mbps", 3, |sample| Some(sample.capacity_mbps)),
            figure("rtt_ms", 3, |sample| sample.rtt_ms),
            figure("queue_delay_ms", 3, |sample| sample.queue_delay_ms),
            figure("cwnd_packets", 1, |sample| Some(sample.cwnd_packets)),
            figure("pacing_mbps", 3, |sample| Some(sample.pacing_mbps)),
            Column::name("state", "state", |(_, sample): &At<'_>| sample.state.into()),
        ];
        let mut rows: Vec<At<'_>> = Vec::new();
        for series in &self.series {
            rows.extend(series.samples.iter().map(|sample| (series, sample)));
        }
        Table::of(&columns, &rows)
    }
}

/// Medians over the traces of some runs; columns in which nothing stands are left out.
pub(super) fn medians<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Table {
    let rows: Vec<OfPart> = rows.into_iter().map(|row| ("", row.clone())).collect();
    let table = Table::of(&run_columns(), &rows).summed_up().without_empty();
    table.coloured("system", family)
}

fn run_columns() -> Vec<Column<OfPart>> {
    let mut columns = vec![
        Column::name("part", "part", |(part, _): &OfPart| (*part).into()),
        Column::name("system", "system", |(_, row): &OfPart| (&row.system).into()),
        Column::name("variant", "variant", |(_, row): &OfPart| {
            row.variant.clone().into()
        }),
        Column::name("trace", "traces", |(_, row): &OfPart| {
            (&row.params.trace).into()
        })
        .distinct(),
        Column::name("direction", "direction", |(_, row): &OfPart| {
            (&row.params.direction).into()
        })
        .dropped(),
        Column::share("loss", "loss", 2, |(_, row): &OfPart| {
            row.params.loss.into()
        })
        .dropped(),
        Column::name("recorded_loss", "as recorded", |(_, row): &OfPart| {
            row.params.recorded_loss.into()
        })
        .dropped(),
        Column::count("queue", "queue", |(_, row): &OfPart| {
            row.params.queue.into()
        })
        .dropped(),
    ];
    columns.extend(columns::metrics(|(_, row): &OfPart| &row.metrics));
    columns
}

/// One system at one loss beside each other one.
pub(super) fn beside(lines: &[Beside]) -> Table {
    let ratio = |key, name, unit, of: fn(&Beside) -> f64| {
        Column::number(key, name, unit, 2, move |line: &Beside| of(line).into()).digits(4)
    };
    let count = |key, name, of: fn(&Beside) -> usize| {
        Column::count(key, name, move |line: &Beside| of(line).into())
    };
    let goal: &'static str = const {
        assert!(QUEUE_GOAL == 0.56);
        "≤ 0.56"
    };
    let columns = [
        Column::name("loss", "loss", |line: &Beside| (&line.loss).into()),
        Column::name("system", "system", |line: &Beside| (&line.system).into()),
        Column::name("beside", "beside", |line: &Beside| (&line.other).into()),
        count("runs", "runs", |line| line.runs),
        ratio("throughput_ratio_median", "throughput ×", "", |line| {
            line.throughput.median
        })
        .brief("Mbit/s ×"),
        ratio("throughput_ratio_least", "least", "", |line| {
            line.throughput.least
        }),
        ratio("throughput_ratio_greatest", "most", "", |line| {
            line.throughput.greatest
        }),
        ratio("queue_ratio_median", "queue mean ×", "", |line| {
            line.queue.median
        })
        .brief("queue ×"),
        ratio("queue_ratio_least", "least", "", |line| line.queue.least),
        ratio("queue_ratio_greatest", "most", "", |line| {
            line.queue.greatest
        }),
        count("queue_within_goal", goal, |line| line.within_goal),
        count("beaten_in_both", "beaten", |line| line.beaten),
        count("ahead_in_both", "ahead", |line| line.ahead),
    ];
    Table::of(&columns, lines)
}

/// Each controller that is told nothing beside BBR, on each trace; nothing when BBR did not run.
pub(super) fn without_signals(rows: &[Row]) -> Table {
    let ratio = |key, name, of: fn(&Row) -> f64| {
        Column::number(key, name, "", 3, move |(row, bbr): &Unaware<'_>| {
            (of(row) / of(bbr).max(f64::MIN_POSITIVE)).into()
        })
    };
    let columns = [
        Column::name("system", "system", |(row, _): &Unaware<'_>| {
            (&row.system).into()
        }),
        Column::name("trace", "trace", |(row, _): &Unaware<'_>| {
            (&row.params.trace).into()
        }),
        ratio("throughput", "throughput", |row| {
            row.metrics.throughput_mbps
        }),
        ratio("queue", "queue mean", |row| row.metrics.queue_delay_mean_ms),
    ];
    let unaware = rows
        .iter()
        .filter(|row| row.variant.as_deref() == Some(NO_SIGNALS));
    let beside_bbr = |row: &'_ Row| {
        let same = |other: &&Row| other.system == "bbr" && other.params == row.params;
        rows.iter().find(same)
    };
    let rows: Vec<Unaware<'_>> = unaware
        .filter_map(|row| Some((row, beside_bbr(row)?)))
        .collect();
    Table::of(&columns, &rows).coloured("system", family)
}

/// Jain's index for flows of one kind, and who gets what beside Cubic and BBR.
pub(super) fn fairness(rows: &[FairnessRow]) -> Table {
    let figure = |key, name, unit, decimals, of: fn(&Shared<'_>) -> f64| {
        Column::number(key, name, unit, decimals, move |line: &Shared<'_>| {
            of(line).into()
        })
    };
    let columns = [
        Column::name("flows", "flows", |line: &Shared<'_>| (&line.who).into()),
        figure("jain", "Jain", "", 3, |line| line.jain),
        figure("least_jain", "least", "", 3, |line| line.least_jain),
        Column::number("rates_mbps", "Mbit/s each", "", 1, |line: &Shared<'_>| {
            let rates = line.rates_mbps.iter().map(|rate| format!("{rate:.1}"));
            rates.collect::<Vec<_>>().join(" + ").into()
        }),
        Column::share("utilisation", "of capacity", 1, |line: &Shared<'_>| {
            line.utilisation.into()
        })
        .brief("use"),
        figure("queue", "queue mean", "ms", 2, |line| {
            line.queue_delay_mean_ms
        })
        .brief("queue"),
        Column::count("traces", "traces", |line: &Shared<'_>| line.traces.into()),
    ];
    let lines = digest::fairness(rows);
    let first = |who: &str| {
        let line = lines.iter().find(|line| line.who == who);
        line.map_or("", |line| family(line.first))
    };
    Table::of(&columns, &lines).coloured("flows", first)
}

/// Precision and recall of the detector over all traces.
pub(super) fn detector(rows: &[DetectorRow]) -> Table {
    let count = |key, name, of: fn(&Detected<'_>) -> u32| {
        Column::count(key, name, move |line: &Detected<'_>| of(line).into())
    };
    let figure = |key, name, unit, decimals, of: fn(&Detected<'_>) -> f64| {
        Column::number(key, name, unit, decimals, move |line: &Detected<'_>| {
            of(line).into()
        })
    };
    let columns = [
        Column::name("beside", "flow beside", |line: &Detected<'_>| {
            line.beside.into()
        }),
        Column::name("queue", "probes' queue", |line: &Detected<'_>| {
            line.queue.into()
        })
        .brief("queue"),
        count("reconfigurations", "reconfigurations", |line| {
            line.reconfigurations
        })
        .brief("true"),
        count("found", "found", |line| line.found),
        count("wrong", "false", |line| line.wrong),
        figure("precision", "precision", "%", 1, |line| line.precision()),
        figure("recall", "recall", "%", 1, |line| line.recall()),
        figure("latest_ms", "latest", "ms", 0, |line| line.latest_ms),
    ];
    Table::of(&columns, &digest::detector(rows))
}

/// Each system over one trace: means, and how long it was in each state.
pub(super) fn time_series(all: &[TimeSeries]) -> Table {
    let mean = |key, unit, name, decimals, of: fn(&Sample) -> Option<f64>| {
        Column::number(key, name, unit, decimals, move |series: &TimeSeries| {
            let values: Vec<f64> = series.samples.iter().filter_map(of).collect();
            let count = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
            Value::Number(values.iter().sum::<f64>() / count.max(1.0))
        })
    };
    let columns = [
        Column::name("system", "system", |series: &TimeSeries| {
            (&series.system).into()
        }),
        mean("throughput_mbps", "Mbit/s", "", 2, |sample| {
            Some(sample.throughput_mbps)
        }),
        mean("queue_delay_ms", "ms", "queue", 2, |sample| {
            sample.queue_delay_ms
        }),
        mean("rtt_ms", "ms", "rtt", 1, |sample| sample.rtt_ms),
        Column::name(
            "states",
            "share of the time in each state, %",
            |series: &TimeSeries| {
                let shares = state_shares(series).into_iter();
                let shares = shares.map(|(state, share)| format!("{state} {:.0}", share * 100.0));
                shares.collect::<Vec<_>>().join(", ").into()
            },
        ),
    ];
    Table::of(&columns, all)
}
