"""`StopOnInterrupt`: Ctrl-C in three stages."""

from __future__ import annotations

import os
import signal
import threading

import millstream as ms
import numpy as np
import pytest
from conftest import Python

LOADER = ms.DataLoader(
    [ms.ArraySampleSource({"x": np.arange(80.0)}), ms.BatchTransform(4)]
)


@pytest.fixture(autouse=True)
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def press_twice(error=None):
    press_ctrl_c()
    press_ctrl_c()
    if error is not None:
        raise error


def test_the_first_signal_ends_the_loop_and_the_rest_can_be_resumed(capsys):
    run = LOADER.run(seed=0, epochs=2)
    with ms.StopOnInterrupt() as interrupts:
        for _ in interrupts.until_stopped(run):
            if run.step == 3:
                press_ctrl_c()
    assert (run.step, interrupts.stopped, interrupts.stage) == (3, True, 1)
    assert "[millstream] interrupted: no more batches" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    whole = [batch["x"] for batch, _ in LOADER.run(seed=0, epochs=2)]
    rest = [batch["x"] for batch, _ in LOADER.run(run.state, epochs=2)]
    np.testing.assert_array_equal(np.stack(whole[3:]), np.stack(rest))


def test_the_second_signal_raises_at_the_next_batch():
    run = LOADER.run(seed=0, epochs=2)
    steps = []

    def loop():
        with ms.StopOnInterrupt() as interrupts:
            for _ in interrupts.until_stopped(run):
                press_twice()
                steps.append(run.step)  # this line still runs

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert steps == [1]


def test_the_second_signal_raises_at_the_end_of_the_block():
    with pytest.raises(KeyboardInterrupt), ms.StopOnInterrupt():
        press_twice()


def test_an_error_of_the_block_is_not_replaced():
    with pytest.raises(LookupError), ms.StopOnInterrupt():
        press_twice(LookupError())


def test_the_third_signal_ends_the_process(python: Python):
    process = python.start("""
        import os, signal
        import millstream as ms

        signal.signal(signal.SIGINT, signal.default_int_handler)
        stages = []
        def tell(stage):
            print("stage", stage, flush=True)
        with ms.StopOnInterrupt(label="mine", on_stage=tell):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            print("not reached", flush=True)
    """)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out.split("\n") == ["stage 1", "stage 2", "stage 3", ""]
    assert "[mine] interrupted: ending the process" in err


def test_stop_works_in_any_thread():
    found = []

    def loop():
        run = LOADER.run(seed=0, epochs=2)
        stages = []
        with ms.StopOnInterrupt(on_stage=stages.append) as interrupts:
            for _ in interrupts.until_stopped(run):
                if run.step == 2:
                    interrupts.stop()
                    interrupts.stop()
        found.extend([run.step, stages])

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join(60)
    assert found == [2, [1]]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_every_handler_is_restored(handler):
    signal.signal(signal.SIGINT, handler)
    with ms.StopOnInterrupt() as interrupts:
        press_ctrl_c()
        assert interrupts.stopped
    assert signal.getsignal(signal.SIGINT) == handler


def test_all_batches_come_without_a_signal():
    with ms.StopOnInterrupt() as interrupts:
        assert sum(1 for _ in interrupts.until_stopped(LOADER.run(epochs=2))) == 40
    assert not interrupts.stopped
