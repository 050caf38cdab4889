#!/bin/sh
# Ask a server of `dragoman serve` with curl: sh examples/serving/requests.sh [ADDRESS]
set -eu
address=${1:-http://127.0.0.1:8500}
ask() { curl -sS --fail-with-body ${DRAGOMAN_API_KEY:+-H "Authorization: Bearer $DRAGOMAN_API_KEY"} "$@"; echo; }

ask "$address/readyz"
ask "$address/v1/models"
ask "$address/v1/predict" --json '{"inputs": "some text"}'
ask "$address/v1/predict" --json '{"inputs": ["one text", "another"], "beam": 5, "n_best": 3}'
ask "$address/v1/score" --json '{"inputs": ["some text"], "targets": ["some target"]}'
ask -N "$address/v1/predict" --json '{"inputs": "some text", "beam": 1, "stream": true}'
