"""SOURCE strings are resolved to genomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nas.common.errors import NasError
from nas.genome import PLACEMENTS, Genome, Placement, Rest, Visibility
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import labelled, load_genome, resolve


def test_source_changes_parameters() -> None:
    source = resolve("qana:hidden=8,activation=relu,rope=true,basis=null")
    assert source.name == "qana:hidden=8,activation=relu,rope=true,basis=null"
    assert dict(source.genome.nodes[0].params) == {
        "hidden": 8,
        "activation": "relu",
        "rope": True,
        "basis": None,
    }
    assert source.genome.nodes[1:] == MECHANISMS["qana"].genome.nodes[1:]


def test_source_changes_projections_placement_and_window() -> None:
    found = load_genome("mha:qk_dim=1/4, placement=first, has_wo=false, window=16")
    projections = replace(MECHANISMS["mha"].genome.projections, qk_dim="1/4", has_wo=False)
    assert found == Genome(
        MECHANISMS["mha"].genome.nodes, projections, PLACEMENTS["first"], Visibility(window=16)
    )


def test_source_may_be_a_hybrid() -> None:
    found = load_genome("gqa:every=4, count=3, window=8, rest=mha:window=16")
    assert found.placement == Placement(every=4, count=3, rest=Rest(window=16))
    assert (found.visibility.window, found.projections) == (8, MECHANISMS["gqa"].genome.projections)
    found = load_genome("neural_attention:count=2")
    assert found.placement == Placement(every=None, count=2)


def test_genome_files_have_their_stems_as_labels_unless_two_are_equal(tmp_path: Path) -> None:
    files = [tmp_path / place for place in ("find.json", "a/find.json", "b.json", "mha.json")]
    (tmp_path / "a").mkdir()
    for file in files:
        file.write_text(MECHANISMS["gqa"].genome.to_json())
    *same, other, named = map(str, files)
    assert [*labelled(map(resolve, ("mha", other, named)))] == ["mha", "b", named]
    assert [*labelled(map(resolve, (*same, other)))] == [*same, other]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qana:hiden=8", "there is no 'hiden' to change (did you mean 'hidden'?)"),
        ("qana:", "'' is no change"),
        ("mha:qk_dim=1/3", "proj_config.qk_dim: found str '1/3'"),
        ("mha:placement=last", "placement: found str 'last'"),
        ("mha:rest=gqa", "placement.rest: found str 'gqa'"),
        ("mha:qk_dim=[1", "not YAML"),
        ("latest/", "expected RUN/ID, for example latest/best"),
    ],
)
def test_invalid_source_is_refused(text: str, words: str) -> None:
    with pytest.raises(NasError) as caught:
        resolve(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
