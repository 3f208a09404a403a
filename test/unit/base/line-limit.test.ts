import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { createLog, LineLimit } from '../../../src/base/log.ts';

it('a message has a bounded number of lines per minute, and the others are counted', () => {
  let now = 0;
  const limit = new LineLimit(2, () => now);
  expect(limit.takeSuppressed()).toEqual([]);
  expect([1, 2, 3, 4].map(() => limit.admit('a'))).toEqual([true, true, false, false]);
  expect(limit.admit('b')).toBe(true);
  now = 59_999;
  expect(limit.takeSuppressed()).toEqual([]);
  now = 60_000;
  expect(limit.takeSuppressed()).toEqual([{ message: 'a', count: 2 }]);
  expect(limit.admit('a')).toBe(true);
  now = 120_000;
  expect(limit.takeSuppressed()).toEqual([]);
});

it('a log with a limit drops excess lines, also of children, but never debug lines', () => {
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(JSON.parse(String(line)).msg);
      done();
    },
  });
  const log = createLog({ level: 'debug', destination, maxLinesPerMinute: 2 });
  const child = log.child({ endpoint: 'e' });
  for (const each of [log, child, child]) each.warn({ text: 'different' }, 'worker process exited');
  log.error(new Error('no'), 'request failed');
  for (let count = 0; count < 3; count++) log.debug('outcome reported');
  expect(lines).toEqual([
    ...['worker process exited', 'worker process exited', 'request failed'],
    ...Array(3).fill('outcome reported'),
  ]);
});
