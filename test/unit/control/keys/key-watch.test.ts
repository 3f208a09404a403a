// Who watches a key hears of its end once, and a further watcher costs the others nothing.
import { expect, it } from 'vitest';
import { type Clock, ManualClock } from '../../../../src/base/clock.ts';
import { KeyWatch } from '../../../../src/control/keys/keys.ts';

const DAY_MS = 86_400_000;

/** A key that ends in a day, and counters of the timers that were set. */
function openWatch() {
  const time = new ManualClock();
  const counts = { set: 0, open: 0 };
  const clock: Clock = {
    now: time.now,
    after(ms, act) {
      counts.set += 1;
      counts.open += 1;
      let isOpen = true;
      const end = () => {
        if (isOpen) counts.open -= 1;
        isOpen = false;
      };
      const cancel = time.after(ms, () => {
        end();
        act();
      });
      return () => {
        end();
        cancel();
      };
    },
  };
  let endsAt: number | null | undefined = time.now() + DAY_MS;
  let change = (_keyId: string) => {};
  const watch = new KeyWatch({
    clock,
    keys: {
      endOf: () => endsAt,
      onChange(listener) {
        change = listener;
        return () => {};
      },
    },
  });
  const setEnd = (end: number | null | undefined) => {
    endsAt = end;
    change('k');
  };
  return { counts, setEnd, time, watch };
}

it('sets one timer for each watcher of a key', () => {
  const { counts, watch } = openWatch();
  const stops = Array.from({ length: 100 }, () => watch.watch('k', () => {}));
  expect(counts).toEqual({ set: 100, open: 100 });
  for (const stop of stops) stop();
  expect(counts.open).toBe(0);
});

it('tells each watcher once that its key has ended, or is changed to have ended', async () => {
  for (const isRevoked of [true, false]) {
    const { counts, setEnd, time, watch } = openWatch();
    let ends = 0;
    for (let n = 0; n < 3; n++) {
      watch.watch('k', () => {
        ends += 1;
      });
    }
    if (isRevoked) setEnd(undefined);
    else {
      setEnd(time.now() + 90_000);
      await time.advance(89_000);
      expect(ends).toBe(0);
      await time.advance(2_000);
    }
    expect([ends, counts.open]).toEqual([3, 0]);
    watch.watch('k', () => {
      ends += 1;
    });
    expect(ends).toBe(4);
  }
});

it('sets no timer for a key without an end', () => {
  const { counts, setEnd, watch } = openWatch();
  setEnd(null);
  watch.watch('k', () => {});
  expect(counts.set).toBe(0);
});
