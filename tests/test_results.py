"""Every variable has a unit and a name, and a file gives back what was saved."""

import pytest
import xarray as xr

import workbench as wb
from workbench import results
from workbench.errors import FileError
from workbench.units import registry


def small(**variables) -> xr.Dataset:
    given = {"decode_tok_s": ("context", [30.0, 20.0]), **variables}
    return results.dataset(given, {"context": [0, 4096]}, source="a paper", mechanism="M02")


def test_units_and_names_come_from_the_registry():
    ds = small()
    assert ds.decode_tok_s.attrs == {"units": "token/s", "long_name": "decode speed"}
    assert ds.context.attrs == {"units": "token", "long_name": "context depth"}
    assert (
        ds.attrs["source"] == "a paper" and ds.attrs["mechanism"] == "M02" and ds.attrs["version"]
    )


def test_a_variable_without_units_is_refused():
    with pytest.raises(KeyError, match="'warmth' has no units or long_name"):
        small(warmth=("context", [1.0, 2.0]))
    with pytest.raises(KeyError, match="'room' has no units"):
        results.dataset({"decode_tok_s": ("room", [1.0])}, {"room": ["kitchen"]})


def test_a_variable_that_brings_its_units_is_kept():
    attrs = {"units": "W", "long_name": "power"}
    assert small(warmth=("context", [1.0, 2.0], attrs)).warmth.attrs == attrs


def test_units_that_a_ratio_inherits_are_replaced():
    """xarray keeps attrs through arithmetic, so that seconds over seconds would still say "s"."""
    time = small(time_s=("context", [0.03, 0.05])).time_s
    assert (time / time.sum()).attrs["units"] == "s"
    assert small(share=time / time.sum()).share.attrs["units"] == "1"


@pytest.mark.parametrize(
    "name", [n for n, (units, _) in results.VARIABLES.items() if "byte" in units]
)
def test_units_are_readable_by_pint(name):
    assert registry().parse_units(results.VARIABLES[name][0])


@pytest.mark.parametrize(
    "attrs, text",
    [
        ({"units": "token/s", "long_name": "decode speed"}, "decode speed [token/s]"),
        ({"units": "1", "long_name": "share of the time"}, "share of the time"),
        ({"long_name": "share"}, "share"),
        ({}, "speed"),
    ],
)
def test_axis_label(attrs, text):
    assert results.label(xr.DataArray([1.0], dims="x", name="speed", attrs=attrs)) == text


def test_a_prediction_survives_netcdf(tmp_path):
    work = wb.Workload(
        context=wb.axis("context", [0, 4096]), kv_bits=wb.axis("kv_bits", ["f16", "q8_0"])
    )
    models = [wb.Model.preset(name) for name in ("llama-3.1-8b", "qwen3-30b-a3b")]
    ds = wb.predict(models, wb.Device.preset("rtx 4090"), work)
    path = wb.save(ds, tmp_path / "prediction.nc")
    opened = wb.open(path)
    xr.testing.assert_identical(opened.drop_encoding(), ds.drop_encoding())
    assert opened.fits.dtype == bool and opened.bound.dtype.kind == ds.bound.dtype.kind


@pytest.mark.parametrize("content", [None, b"", b"\x89HDF\r\n\x1a\n", b"not a file of ours" * 99])
def test_files_of_another_kind_are_refused(tmp_path, content):
    path = tmp_path / "other.nc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match="other.nc"):
        wb.open(path)
    with pytest.raises(FileError):
        wb.open(tmp_path)
