#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stories.sh COUNT [SUBJECTS]: prints so many little stories as JSON lines, always the same ones. SUBJECTS: the animals
# of the stories, separated by commas.
exec awk -v count="$1" -v subjects="${2:-fox,bird,cat,dog,horse,mouse}" '
function pick(list, n, of) { n = split(list, of, ","); seed = (seed * 16807) % 2147483647; return of[seed % n + 1] }
function name() { return pick("small,old,young,quick,quiet") " " pick(subjects) }
BEGIN {
    seed = 20260
    for (story = 0; story < count; ++story) {
        hero = name()
        friend = name()
        place = pick("river,forest,house,hill,garden")
        text = "A " hero " lives near the " place ". Every " pick("morning,evening,night") " it " \
            pick("looks for,waits for,sings to,runs to") " a " friend ". "
        text = text "One day the " friend " " pick("is ill,is lost,is hungry,is far away") ". The " hero " goes to the " \
            pick("river,forest,house,hill,garden") " and " pick("finds it,calls it,brings it home,helps it") ". "
        print "{\"text\": \"" text "Now the " hero " and the " friend " are friends.\"}"
    }
}'
