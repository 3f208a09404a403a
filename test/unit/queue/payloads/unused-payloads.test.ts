// Payloads that lose their job between two passes of the sweeper are deleted soon, not with its next pass.
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { SendAttempt, WebhookSender } from '../../../../src/queue/webhooks/webhooks.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  NEVER,
  Platform,
} from '../../../support/queue-platform.ts';

/** Too large to be deleted together with its job. */
const LARGE = JSON.stringify('x'.repeat(600_000));

let platform: Platform;
let worker: Hand;
let answered: PromiseWithResolvers<SendAttempt>;

beforeEach(async () => {
  answered = Promise.withResolvers();
  const sender: WebhookSender = {
    judge: () => undefined,
    send: (_delivery, _record, signal) => {
      signal.addEventListener('abort', () => answered.resolve({ result: '5xx', detail: '' }));
      return answered.promise;
    },
    close: async () => {},
  };
  const settings = { retentionMs: { run: 40_000, runsync: 40_000 } };
  platform = new Platform({ settings, webhooks: () => sender });
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

const listUnused = () => platform.store.read((tx) => tx.unusedPayloads(10));

async function expectDeletion(): Promise<void> {
  expect(await listUnused()).toHaveLength(1);
  await platform.clock.advance(1_000);
  for (let pass = 0; pass < 50; pass++) await platform.clock.advance(1);
  expect(await listUnused()).toEqual([]);
}

it('the input of a deleted endpoint', async () => {
  await platform.submit({}, Buffer.from(LARGE));
  await platform.store.write((tx) => {
    const endpoint = tx.endpoint(ENDPOINT);
    if (endpoint) tx.putEndpoint({ ...endpoint, deleted: true });
  });
  await platform.queue.removal.drop(ENDPOINT, NEVER);
  await expectDeletion();
});

it('the output of a job that was removed before its webhook was delivered', async () => {
  await platform.submitWithWebhook('https://a.example/done');
  await worker.finish(await worker.takeOne(), completed, { body: LARGE });
  await platform.clock.advance(45_000);
  expect(await listUnused()).toEqual([]);
  answered.resolve({ result: '2xx', detail: '' });
  await platform.clock.advance(0);
  await expectDeletion();
});

it('the chunks of an attempt that is retried', async () => {
  const id = await platform.submit();
  const lease = await worker.takeOne();
  await worker.report([chunksOf(lease, 1, 0, [LARGE])]);
  await worker.finish(lease, { ...failed, retry: 'never' }, { seq: 2 });
  await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
  await expectDeletion();
});
