# Arguments: a number for mark, routing table and table of nftables; those of all owners, as a pattern; -4 or -6; `end` if it is only to
# remove what an owner left. Its input: the rules of nftables, which may be longer than an argument, and an empty line.
trap '' INT TERM HUP PIPE
number=$1 ours=$2 family=$3 rules=
# A service of systemd may be killed with all its processes, this one too: its unit then runs what lies there.
undo=${RUNTIME_DIRECTORY:+${RUNTIME_DIRECTORY%%:*}/intercepted-$number}
commands="ip $family rule del iif lo fwmark $number lookup main
ip $family rule del fwmark $number lookup $number
ip $family route del local default dev lo table $number
nft delete table inet starhaul_$number"
end() {
    eval "$commands" 2>/dev/null
    [ -z "$undo" ] || rm -f "$undo"
}
if [ "$4" = end ]; then
    end
    # Of which version of IP it was nobody knows, nor whether it was just moving its rule.
    for family in -4 -6; do
        while ip $family rule del fwmark $number lookup $number; do :; done
        while ip $family rule del iif lo fwmark $number lookup main; do :; done
        ip $family route del local default dev lo table $number
    done
    exit
fi 2>/dev/null
while :; do
    IFS= read -r line || exit 1
    [ -n "$line" ] || break
    rules="$rules$line
"
done
for program in nft ip; do
    command -v $program >/dev/null || {
        echo "the program $program is missing: install nftables and iproute2" >&2
        exit 1
    }
done
is_taken() {
    nft list table inet starhaul_$number >/dev/null 2>&1 && return 0
    [ -n "$(ip $family rule show table $number; ip $family rule show fwmark $number; ip $family route show table $number 2>/dev/null)" ]
}
if is_taken; then
    echo taken
    exit 1
fi
# One transaction: where it fails, nothing of it is there.
refusal=$(printf '%s' "$rules" | nft -f - 2>&1) || {
    # Another process may have been faster.
    if is_taken; then echo taken; else echo "$refusal" >&2; fi
    exit 1
}
[ -z "$undo" ] || echo "$commands" >"$undo" || undo=
route() { ip $family route add local default dev lo table $number; }
# What this host sends, and its look at the way back to a packet's source, have the mark where it is set so (net.ipv4.tcp_fwmark_accept,
# src_valid_mark): they do not lead to its sockets. The rule that is added later goes before.
past() { ip $family rule add iif lo fwmark $number lookup main; }
rule() {
    while ip $family rule del iif lo fwmark $number lookup main 2>/dev/null; do :; done
    ip $family rule add fwmark $number lookup $number && past
}
# A rule goes before those that are there: a VPN that starts later, and takes all that it has not marked, goes before ours, which moves to the front
# again. Prints the place of ours if others are before it.
behind() {
    others=
    ip $family rule show | while read -r place what; do
        case "$place $what" in
        0:* | *" iif lo lookup main"* | *" lookup "$ours*) ;;
        *) others=1 ;;
        esac
        case "$what" in *" lookup $number"*)
            [ -z "$others" ] || echo "${place%:}"
            break
            ;;
        esac
    done
}
route && rule || {
    end
    exit 1
}
echo ready
# All chains cost less to list than a table with what a set of it holds, or that of another one.
is_there() {
    case "$(nft list chains inet)" in *"table inet starhaul_$number {"*) ;; *) false ;; esac
}
# Other programs flush all rules when they load theirs, or remove routes that are not theirs: what is missing is made again.
restore() {
    is_there || printf '%s' "$rules" | nft -f -
    [ -n "$(ip $family route show table $number)" ] || route
    [ -n "$(ip $family rule show table $number)" ] || rule
    [ -n "$(ip $family rule show iif lo fwmark $number)" ] || past
    place=$(behind)
    [ -z "$place" ] || { rule && ip $family rule del preference $place fwmark $number lookup $number; }
}
if command -v timeout >/dev/null; then
    until timeout -s KILL 5 cat >/dev/null; do restore; done 2>/dev/null
else
    cat >/dev/null
fi
end
