# SPDX-License-Identifier: Apache-2.0
"""The keys of the demo: the world's cities, and cuts between them by population."""
import pathlib

CITIES = pathlib.Path(__file__).resolve().parent / "data" / "cities.tsv"


def say(text=""):
    print(text, flush=True)


def read_cities():
    """[(key, population)], in the order of the keys' bytes."""
    cities = []
    with open(CITIES, encoding="utf-8") as lines:
        for line in lines:
            key, population, *_ = line.split("\t")
            cities.append((key, int(population)))
    return cities


def equal_cuts(cities, parts):
    """Keys that cut the cities into `parts` runs of about equal population. One city can be more than a part's share,
    so each cut is taken at what is left, divided by the parts that are left."""
    cuts, left, here = [], sum(p for _, p in cities), 0
    for at, (key, population) in enumerate(cities):
        parts_left = parts - len(cuts)
        must_cut = len(cities) - at <= parts_left - 1
        if here > 0 and parts_left > 1 and (must_cut or here + population / 2 >= left / parts_left):
            cuts.append(key)
            left -= here
            here = 0
        here += population
    return cuts
