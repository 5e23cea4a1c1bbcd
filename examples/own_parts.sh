#!/usr/bin/env bash
# Trains, resumes, evaluates, reports, exports and verifies a run whose parts a plugin adds.
# usage: own_parts.sh STEELYARD PLUGIN RECIPE FOLDER
set -euo pipefail

rm -rf "$4"
"$1" train "$3" --plugin "$2" --run-dir "$4" --set train.epochs=2
"$1" train "$3" --plugin "$2" --run-dir "$4" --resume
"$1" eval "$4" --plugin "$2"
"$1" report "$4" --plugin "$2"
"$1" export "$4" --plugin "$2" --format safetensors
"$1" verify "$4" --plugin "$2"
