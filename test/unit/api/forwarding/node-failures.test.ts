// How often failures of forwarding are logged.
import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { NodeFailures } from '../../../../src/api/forwarding/passage.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { ENDPOINT, readJson } from '../../../support/api/platform.ts';
import { startNodes } from '../../../support/api/two-nodes.ts';

const NODE = 'http://10.0.0.1:8091';

function start() {
  const clock = new ManualClock();
  const lines: unknown[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      const { end, failures, msg, node } = JSON.parse(String(line));
      lines.push({ msg, node, failures, ...(end !== undefined && { end }) });
      done();
    },
  });
  const failures = new NodeFailures({ clock, log: createLog({ level: 'info', destination }) });
  return { clock, lines, failures };
}

const failed = (failures: number, end: string) => ({
  ...{ msg: 'forwarding to a node failed', node: NODE, failures, end },
});

it('logs the first failure, then a count once a minute', async () => {
  const { clock, failures, lines } = start();
  for (let second = 0; second < 150; second++) {
    for (let n = 0; n < 10; n++) failures.fail(NODE, 'unsent');
    await clock.advance(1_000);
  }
  expect(lines).toEqual([failed(1, 'unsent'), failed(600, 'unsent'), failed(600, 'unsent')]);
});

it('logs that a node works again, with the count, and then a new failure', async () => {
  const { clock, failures, lines } = start();
  failures.fail(NODE, 'unsent');
  failures.fail(NODE, 'unknown');
  // One answer between two failures is not the end.
  failures.answer(NODE);
  failures.fail(NODE, 'unsent');
  await clock.advance(5_000);
  failures.answer(NODE);
  failures.answer(NODE);
  failures.fail(NODE, 'denied');
  expect(lines).toEqual([
    failed(1, 'unsent'),
    { msg: 'forwarding to a node works again', node: NODE, failures: 3 },
    failed(1, 'denied'),
  ]);
});

it('logs the failure of a real node once', async () => {
  const { move, other, owner } = await startNodes({ forwarding: { bounds: { ownerWaitMs: 600 } } });
  move('http://127.0.0.1:1');
  other.placement.learn();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => other.call(`/v2/${ENDPOINT}/health`)),
  );
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 503));
  expect(other.logged().match(/forwarding to a node failed/g)).toHaveLength(1);
  move(owner.nodeUrl);
  other.placement.learn();
  expect(await readJson(await other.call(`/v2/${ENDPOINT}/health`))).toHaveProperty('jobs');
});
