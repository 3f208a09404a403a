// An engine's stream of changes: when it is open, and what follows its end.
import { setTimeout as wait } from 'node:timers/promises';
import { expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { ChangeFeed, type ChangeStream } from '../../../src/engine/answers.ts';

const untilAborted = ({ signal }: ChangeStream) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

it('opens one stream for all listeners, and ends it with the last of them', async () => {
  const streams: ChangeStream[] = [];
  const read = (stream: ChangeStream) => {
    streams.push(stream);
    return untilAborted(stream);
  };
  const feed = new ChangeFeed({ read, onFailure: () => {}, clock: systemClock });
  const seen: string[] = [];
  const onChange = (id: string) => seen.push(id);

  const stopFirst = feed.listen(onChange);
  const stopSecond = feed.listen(onChange);
  streams[0]?.changed('a');
  stopFirst();
  streams[0]?.changed('b');
  stopSecond();
  streams[0]?.changed('c');

  expect(streams).toHaveLength(1);
  expect(seen).toEqual(['a', 'a', 'b']);
  expect(streams[0]?.signal.aborted).toBe(true);
});

it('opens the stream again after it ended and after it failed, and tells of failures only', async () => {
  const failures: unknown[] = [];
  let opened = 0;
  const read = async (stream: ChangeStream) => {
    opened++;
    stream.opened();
    if (opened === 2) throw new Error('broken');
    if (opened > 2) await untilAborted(stream);
  };
  const onFailure = (error: unknown) => failures.push(error);
  const feed = new ChangeFeed({ read, onFailure, clock: systemClock });

  feed.listen(() => {});
  await vi.waitUntil(() => opened === 3, { timeout: 30_000 });
  feed.close();

  expect(failures).toEqual([new Error('broken')]);
});

it('keeps silent about a failure that its own end caused', async () => {
  const failures: unknown[] = [];
  const read = async (stream: ChangeStream) => {
    await untilAborted(stream);
    throw new Error('aborted');
  };
  const onFailure = (error: unknown) => failures.push(error);
  const feed = new ChangeFeed({ read, onFailure, clock: systemClock });

  const stop = feed.listen(() => {});
  stop();
  await wait(0);

  expect(failures).toEqual([]);
});
