"""Places go to threads in the order in which they came."""

from __future__ import annotations

import threading
import time

from mmroute.net.transport import FairSemaphore


def test_no_place_in_time() -> None:
    places = FairSemaphore(1)
    assert places.acquire(1.0)
    assert not places.acquire(0.01)
    places.release()
    assert places.acquire(0.0)


def test_a_waiting_thread_goes_before_the_one_that_releases() -> None:
    places, order, done = FairSemaphore(1), [], threading.Event()
    assert places.acquire(0.0)

    def wait(number: int) -> None:
        assert places.acquire(60.0)
        order.append(number)
        if number == 1:
            done.set()
        places.release()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        while len(places._waiting) < number:
            time.sleep(0.001)
    places.release()
    assert places.acquire(60.0)
    assert done.is_set()
    assert order == [0, 1]
    for thread in threads:
        thread.join()


def test_no_place_is_lost() -> None:
    """Where waiting ends by time just as a place comes, the place is neither lost nor doubled."""
    places, inside, most = FairSemaphore(2), [], []

    def work() -> None:
        for _ in range(300):
            if places.acquire(0.0001):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0001)
                inside.pop()
                places.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 2
    assert places.acquire(0.0)
    assert places.acquire(0.0)
    assert not places.acquire(0.0)
