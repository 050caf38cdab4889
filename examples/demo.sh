#!/bin/sh
# Check, train, evaluate, predict and look inside, on the dates. Called by `make demo`, which makes the data first.
set -eu
dragoman=${1:-dragoman} data=${2:-examples/dates} run=${3:-runs/dates}

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }

say dragoman check "$data/train.tsv"
"$dragoman" check "$data/train.tsv"

say dragoman train "$data/train.tsv" --dev "$data/dev.tsv" --out "$run"
"$dragoman" train "$data/train.tsv" --dev "$data/dev.tsv" --out "$run"

say dragoman evaluate "$run" "$data/test.tsv"
"$dragoman" evaluate "$run" "$data/test.tsv"

say dragoman predict "$run" "< a few lines typed by hand"
inputs='3. Oktober 1990
the 21st of June 2048
JEUDI 14 JUILLET 1938
1 maja 2004
1999. augusztus 11., szerda
25/12/68
1964年10月10日
Donnerstag 4 Marz 2021'
printf '%s\n' "$inputs" > "$run/demo.txt"
"$dragoman" predict "$run" "$run/demo.txt" > "$run/demo.out"
paste "$run/demo.out" "$run/demo.txt"

say dragoman inspect "$run" '"3. Oktober 1990"' -o "$run/alignment.svg"
"$dragoman" inspect "$run" "3. Oktober 1990" -o "$run/alignment.svg"

say dragoman report "$run"
"$dragoman" report "$run"

printf '\nOpen in a browser:\n'
printf '  %s/report.html    the run: curves, scores, errors and alignments in one file\n' "$run"
printf '  %s/alignment.svg  where the model looked in "3. Oktober 1990"\n' "$run"
printf 'Look inside the run, and try your own dates:\n  %s studio %s\n' "$dragoman" "$run"
