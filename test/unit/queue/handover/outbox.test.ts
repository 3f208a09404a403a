// How many of the messages that wait go out at once.
import { expect, it, onTestFinished } from 'vitest';
import { MAX_CALL_BYTES } from '../../../../src/api/nodes/node-client.ts';
import type { HandoverMessage } from '../../../../src/queue/handover/messages.ts';
import { Outbox } from '../../../../src/queue/handover/outbox.ts';
import { ALONE } from '../../../../src/queue/handover/peers.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { LIMITS } from '../../../../src/wire/job/job.ts';

const flow = { endpointId: 'e0', id: 'flow' };

/** Of a job with as many parents as a job may have, whose outputs get the longest names. */
function addsJob(id: string, inputBytes: number): HandoverMessage {
  const parents = Array.from({ length: LIMITS.parentsOfJob }, (_, index) => ({
    ...{ endpointId: 'e0', id: `${index}`, onFailure: 'fail' as const },
    as: '€'.repeat(128),
  }));
  const links = { parents, children: [], delayMs: 0, flow: { ...flow, index: 0 } };
  const job = { endpointId: 'e1', id, policy: {}, links };
  return { type: 'flow_job', flow, job, inputBytes };
}

/** Bytes of the call that delivers the messages. */
function measureCall(messages: readonly { message: HandoverMessage }[]): number {
  return messages.reduce((sum, { message }) => {
    const inputBytes = message.type === 'flow_job' ? message.inputBytes : 0;
    return sum + Buffer.byteLength(JSON.stringify(message)) + (inputBytes * 4) / 3;
  }, 0);
}

it('delivers messages in calls that no node refuses as too large, also of jobs with many parents', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const outbox = new Outbox(ALONE);
  await store.write((tx) => {
    for (let number = 0; number < 40; number++) {
      outbox.write(tx, [{ shard: 1, message: addsJob(`${number}`, 32_768) }]);
    }
  });
  let taken = 0;
  for (;;) {
    const next = await store.read((tx) => outbox.next(tx, 1));
    if (next.length === 0) break;
    taken += next.length;
    expect(measureCall(next)).toBeLessThan(MAX_CALL_BYTES);
    await store.write((tx) => outbox.remove(tx, 1, next));
  }
  expect(taken).toBe(40);
});
