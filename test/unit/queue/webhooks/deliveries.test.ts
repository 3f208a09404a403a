// What happens to the record of a job that has a webhook: kept with the job's end, tried until it is
// received or given up, over restarts, without one receiver holding up another.
import { afterEach, describe, expect, it } from 'vitest';
import { letOthersRun } from '../../../../src/base/clock.ts';
import {
  DEFAULT_WEBHOOK_SETTINGS,
  type SendAttempt,
  type WebhookRecord,
  type WebhookSender,
  type WebhookSettings,
} from '../../../../src/queue/webhooks/webhooks.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import {
  OWNER,
  type Store,
  type StoredDelivery,
  StoreUnavailableError,
} from '../../../../src/store/store.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  Platform,
  type PlatformOptions,
} from '../../../support/queue-platform.ts';
import { makeDelivery } from '../../../support/store/stored-jobs.ts';

const URL_A = 'https://a.example/done';
const URL_B = 'https://b.example/done';
const OK: SendAttempt = { result: '2xx', detail: '' };
const BAD: SendAttempt = { result: '5xx', detail: 'the receiver answered 500' };

interface Sent {
  delivery: StoredDelivery;
  record: Record<string, unknown>;
  /** Ends the attempt. */
  answer(made: SendAttempt): void;
}

/** A sender whose answers the test gives; by itself it answers by `reply`, if that says something. */
class ScriptedSender implements WebhookSender {
  readonly sent: Sent[] = [];
  closed = 0;
  reply: (delivery: StoredDelivery) => SendAttempt | undefined;

  constructor(reply: (delivery: StoredDelivery) => SendAttempt | undefined = () => OK) {
    this.reply = reply;
  }

  judge(url: string): string | undefined {
    return url.includes('forbidden') ? 'it is forbidden' : undefined;
  }

  async send(delivery: StoredDelivery, record: WebhookRecord, signal: AbortSignal) {
    const parsed = JSON.parse(Buffer.concat(await Array.fromAsync(record())).toString());
    return new Promise<SendAttempt | undefined>((resolve) => {
      this.sent.push({ delivery, record: parsed, answer: resolve });
      signal.addEventListener('abort', () => resolve(undefined));
      const made = this.reply(delivery);
      if (made) resolve(made);
    });
  }

  async close(): Promise<void> {
    this.closed += 1;
  }

  urls(): string[] {
    return this.sent.map(({ delivery }) => delivery.url);
  }
}

let platform: Platform;
let worker: Hand;
let isOpen = false;

async function start(
  sender: ScriptedSender | undefined,
  {
    webhooks = {},
    ...options
  }: Omit<PlatformOptions, 'webhooks'> & {
    webhooks?: Partial<WebhookSettings>;
  } = {},
): Promise<void> {
  const settings = {
    ...options.settings,
    webhooks: { ...DEFAULT_WEBHOOK_SETTINGS, ...webhooks },
  };
  platform = new Platform({ ...options, settings, ...(sender && { webhooks: () => sender }) });
  isOpen = true;
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
}

afterEach(async () => {
  if (!isOpen) return;
  isOpen = false;
  const closing = platform.close();
  await platform.clock.advance(DEFAULT_WEBHOOK_SETTINGS.closeMs);
  await closing;
});

async function finishJob(url = URL_A): Promise<string> {
  const id = await platform.submitWithWebhook(url);
  await worker.finish(await worker.takeOne(), completed, { body: '{"a":1}' });
  await letOthersRun();
  return id;
}

it('go to the webhook of the endpoint for a job that has none of its own', async () => {
  await start(undefined, { endpoint: { webhook: 'https://endpoint.example/hook' } });
  await platform.submit();
  await worker.finish(await worker.takeOne(), completed);
  await finishJob();
  expect(await listWaiting('endpoint.example')).toHaveLength(1);
  expect(await listWaiting()).toHaveLength(1);
});

function listWaiting(receiver = 'a.example'): Promise<StoredDelivery[]> {
  const now = Number.MAX_SAFE_INTEGER;
  return platform.store.read((tx) =>
    tx.dueDeliveries({ userId: OWNER, receiver, now, limit: 1_000 }),
  );
}

/** The timeline without the times. */
async function readTold(id: string) {
  const { timeline = [] } = await platform.queue.jobs.outline({ endpointId: ENDPOINT, id });
  return timeline.map(({ at: _, ...entry }) => entry);
}

/** The verbs of the store, for one of them to be replaced. */
function passOn(store: Store): Store {
  return {
    read: (operation) => store.read(operation),
    write: (operation) => store.write(operation),
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
  };
}

describe('a job with a webhook', () => {
  it('posts the record that status returns when it completes', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    const id = await finishJob();
    expect(sender.sent).toHaveLength(1);
    expect(sender.sent[0]).toMatchObject({
      delivery: { url: URL_A, endpointId: ENDPOINT, jobId: id, attempts: 0 },
    });
    expect(sender.sent[0]?.record).toEqual(await platform.record(id));
    expect(sender.sent[0]?.record).toMatchObject({ status: 'COMPLETED', output: { a: 1 } });
    expect(await listWaiting()).toEqual([]);
  });

  it('tells each attempt to deliver it in the timeline of the job', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender);
    const id = await finishJob();
    await platform.clock.advance(6_000);
    sender.reply = () => OK;
    await platform.clock.advance(12_000);
    const [first, second] = sender.sent.map(({ delivery }) => delivery);
    expect((await readTold(id)).slice(-3)).toEqual([
      { event: 'webhook_failed', attempt: 1, message: BAD.detail, nextAt: second?.nextAt },
      { event: 'webhook_failed', attempt: 2, message: BAD.detail, nextAt: expect.any(Number) },
      { event: 'webhook_delivered', attempt: 3 },
    ]);
    expect(first).toMatchObject({ attempts: 0 });
  });

  it('tells the last few attempts, and that it was given up', async () => {
    const detail = 'connect ECONNREFUSED 10.0.0.7:80';
    await start(new ScriptedSender(() => ({ result: 'unreachable', detail })), {
      webhooks: { maxAttempts: 8, retry: { baseMs: 1_000, maxMs: 1_000, jitter: 0 } },
    });
    const id = await finishJob();
    await platform.clock.advance(10_000);
    const told = (await readTold(id)).filter(({ event }) => event.startsWith('webhook'));
    expect(told.map(({ event, attempt }) => `${event} ${attempt}`)).toEqual([
      ...[3, 4, 5, 6, 7].map((attempt) => `webhook_failed ${attempt}`),
      'webhook_given_up 8',
    ]);
    // Addresses of hosts are only in the log.
    expect(JSON.stringify(told)).not.toContain('10.0.0.7');
  });

  it('posts all yielded values of a stream', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    await platform.submitWithWebhook(URL_A);
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['x', { y: 2 }]));
    await worker.finish(lease, { ...completed, output: 'chunks' }, { seq: 2 });
    await letOthersRun();
    expect(sender.sent[0]?.record).toMatchObject({ output: ['x', { y: 2 }] });
  });

  it('posts its error after the last failure, and nothing before', async () => {
    const sender = new ScriptedSender();
    await start(sender, { endpoint: { maxAttempts: 2 } });
    await platform.submitWithWebhook(URL_A);
    await worker.finish(await worker.takeOne(), failed);
    await platform.clock.advance(2_000);
    expect(sender.sent).toEqual([]);
    await worker.finish(await worker.takeOne(), failed);
    await letOthersRun();
    expect(sender.sent.map(({ record }) => record)).toMatchObject([
      { status: 'FAILED', attempt: 2, error: { code: 'handler_error' } },
    ]);
  });

  it('posts TIMED_OUT when it times out', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    await platform.submitWithWebhook(URL_A, { executionTimeout: 1_000 });
    await worker.takeOne();
    await platform.clock.advance(11_000);
    expect(sender.sent.map(({ record }) => record['status'])).toEqual(['TIMED_OUT']);
  });

  it.each(['cancel', 'purge'])('posts CANCELLED after %s', async (how) => {
    const sender = new ScriptedSender();
    await start(sender);
    const id = await platform.submitWithWebhook(URL_A);
    if (how === 'cancel') await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
    else await platform.queue.jobs.purge(ENDPOINT);
    await letOthersRun();
    expect(sender.sent.map(({ record }) => record)).toMatchObject([{ id, status: 'CANCELLED' }]);
  });

  it('posts nothing more when a cancelled attempt reports how it stopped', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    const id = await platform.submitWithWebhook(URL_A);
    const lease = await worker.takeOne();
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
    await worker.finish(lease, { kind: 'cancelled', executionMs: 9, stopped: 'signal' });
    await letOthersRun();
    expect(sender.sent).toHaveLength(1);
  });

  it('posts nothing when it expires before its end', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    await platform.submitWithWebhook(URL_A, { ttl: 10_000 });
    await platform.clock.advance(11_000);
    expect(sender.sent).toEqual([]);
    expect(await listWaiting()).toEqual([]);
  });

  it('posts each of its ends under another ID when it is retried', async () => {
    const sender = new ScriptedSender();
    await start(sender, { endpoint: { maxAttempts: 1 } });
    const id = await platform.submitWithWebhook(URL_A);
    await worker.finish(await worker.takeOne(), failed);
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
    await platform.clock.advance(1);
    await worker.finish(await worker.takeOne(), completed, { body: '1' });
    await letOthersRun();
    const [first, second] = sender.sent;
    expect([first?.record['status'], second?.record['status']]).toEqual(['FAILED', 'COMPLETED']);
    expect(String(first?.delivery.id) < String(second?.delivery.id)).toBe(true);
  });

  it('is refused when its URL can never be called', async () => {
    await start(new ScriptedSender());
    await expect(platform.submitWithWebhook('https://forbidden.example/')).rejects.toMatchObject({
      code: 'invalid',
      message: expect.stringContaining('it is forbidden'),
    });
  });

  it('is refused if its URL is not http or https, by every API', async () => {
    await start(undefined);
    await expect(platform.submitWithWebhook('mailto:me@example.com')).rejects.toMatchObject({
      code: 'invalid',
    });
  });

  it('stores its delivery in the same commit as its end', async () => {
    const memory = openSqliteStore({ path: ':memory:' });
    let commits = 0;
    const store: Store = {
      ...passOn(memory),
      write: (operation) => {
        commits += 1;
        return memory.write(operation);
      },
    };
    await start(undefined, { store });
    const id = await platform.submitWithWebhook(URL_A);
    const lease = await worker.takeOne();
    commits = 0;
    await worker.finish(lease, completed, { body: '1' });
    expect(commits).toBe(1);
    expect((await platform.job(id)).status).toBe('COMPLETED');
    expect(await listWaiting()).toHaveLength(1);
  });
});

describe('a delivery', () => {
  it('is repeated until it is received, with the same ID and record', async () => {
    const sender = new ScriptedSender(({ attempts }) => (attempts < 2 ? BAD : OK));
    await start(sender);
    await finishJob();
    await platform.clock.advance(4_999);
    expect(sender.sent).toHaveLength(1);
    await platform.clock.advance(1);
    expect(sender.sent).toHaveLength(2);
    await platform.clock.advance(10_000);
    expect(sender.sent.map(({ delivery }) => delivery.attempts)).toEqual([0, 1, 2]);
    expect(new Set(sender.sent.map(({ delivery }) => delivery.id)).size).toBe(1);
    expect(sender.sent[2]?.record).toEqual(sender.sent[0]?.record);
    expect(await listWaiting()).toEqual([]);
    await platform.clock.advance(3_600_000);
    expect(sender.sent).toHaveLength(3);
  });

  it('has its own record, which outlives the job', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender, { settings: { retentionMs: { run: 1_000, runsync: 1_000 } } });
    const id = await finishJob();
    await platform.clock.advance(4_000);
    await expect(platform.record(id)).rejects.toMatchObject({ code: 'not_found' });
    sender.reply = () => OK;
    await platform.clock.advance(1_000);
    expect(sender.sent[1]?.record).toMatchObject({ id, output: { a: 1 } });
  });

  it('is abandoned after its last attempt', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender, { webhooks: { maxAttempts: 3 } });
    await finishJob();
    await platform.clock.advance(60_000);
    expect(sender.sent).toHaveLength(3);
    expect(await listWaiting()).toEqual([]);
    const counts = (await platform.queue.webhookCounts()).get(ENDPOINT);
    expect(counts).toEqual({ counts: { '5xx': 3, given_up: 1 }, waiting: 0 });
  });

  it('leaves no counts when its endpoint is removed, not even of the running attempt', async () => {
    const sender = new ScriptedSender();
    await start(sender);
    await finishJob();
    sender.reply = () => undefined;
    await finishJob();
    const readCounts = async () => (await platform.queue.webhookCounts()).get(ENDPOINT)?.counts;
    expect(await readCounts()).toEqual({ '2xx': 1 });
    await platform.store.write((tx) => tx.removeEndpoint(ENDPOINT));
    platform.queue.removal.forget(ENDPOINT);
    expect(await readCounts()).toBeUndefined();
    sender.sent[1]?.answer(OK);
    await letOthersRun();
    expect(await readCounts()).toBeUndefined();
  });

  it('keeps its next attempt over a restart of the platform', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender);
    await finishJob();
    sender.reply = () => OK;
    await platform.restart();
    await letOthersRun();
    expect(sender.sent).toHaveLength(1);
    await platform.clock.advance(5_000);
    expect(sender.sent.map(({ delivery }) => delivery.attempts)).toEqual([0, 1]);
  });

  it('is attempted after the next start if it was not before', async () => {
    await start(undefined);
    const id = await finishJob();
    const { store } = platform;
    const sender = new ScriptedSender();
    const later = new Platform({ webhooks: () => sender, store });
    await later.start();
    await letOthersRun();
    expect(sender.sent.map(({ record }) => record['id'])).toEqual([id]);
    await later.queue.close();
  });

  it('is abandoned unsent after a day of platform run time', async () => {
    const sender = new ScriptedSender();
    await start(undefined);
    await finishJob();
    await platform.clock.advance(86_400_001);
    const { clock, store } = platform;
    await platform.queue.close();
    const later = new Platform({ webhooks: () => sender, store });
    later.clock.startFrom(clock.now());
    await later.start();
    await letOthersRun();
    expect(sender.sent).toEqual([]);
    expect(await listWaiting()).toEqual([]);
    expect((await later.queue.webhookCounts()).get(ENDPOINT)?.counts).toEqual({ given_up: 1 });
    await later.queue.close();
  });

  it('is sent when the platform starts again after two days', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender);
    await finishJob();
    sender.reply = ({ attempts }) => (attempts < 3 ? BAD : OK);
    await platform.restart(2 * 86_400_000);
    await platform.clock.advance(60_000);
    expect(sender.sent.map(({ delivery }) => delivery.attempts)).toEqual([0, 1, 2, 3]);
    expect(await listWaiting()).toEqual([]);
  });

  it('is removed if it is received while another is abandoned', async () => {
    const sender = new ScriptedSender(() => undefined);
    const memory = openSqliteStore({ path: ':memory:' });
    const held = Promise.withResolvers<void>();
    let isArmed = false;
    // After a look at what is due the first write, which gives up, is held.
    let first = Promise.resolve();
    const store: Store = {
      ...passOn(memory),
      read: (operation) => {
        if (isArmed) first = held.promise;
        isArmed = false;
        return memory.read(operation);
      },
      write: async (operation) => {
        const turn = first;
        first = Promise.resolve();
        await turn;
        return memory.write(operation);
      },
    };
    await start(sender, { store });
    await finishJob();
    const old = makeDelivery({
      ...{ id: 'old', receiver: 'a.example', nextAt: 0 },
      platformRanMs: -86_400_001,
    });
    await memory.write((tx) => tx.insertDelivery(old, [Buffer.from('{}')]));
    isArmed = true;
    await finishJob();
    sender.sent[0]?.answer(OK);
    await letOthersRun();
    held.resolve();
    await letOthersRun();
    const counts = await platform.queue.webhookCounts();
    expect(counts.get('ep_test')?.counts).toEqual({ given_up: 1 });
    expect(counts.get(ENDPOINT)).toEqual({ counts: { '2xx': 1 }, waiting: 1 });
  });

  it('is abandoned without a stored record, even if the store fails meanwhile', async () => {
    const memory = openSqliteStore({ path: ':memory:' });
    let isFull = false;
    class FillingSender extends ScriptedSender {
      override send(...call: Parameters<ScriptedSender['send']>) {
        isFull = true;
        return super.send(...call);
      }
    }
    const store: Store = {
      ...passOn(memory),
      write: (operation) =>
        isFull ? Promise.reject(new StoreUnavailableError('disk full')) : memory.write(operation),
    };
    const lost = makeDelivery({
      ...{ id: 'lost', receiver: 'a.example', bytes: 2 },
      ...{ createdAt: Date.UTC(2026, 0, 1), nextAt: Date.UTC(2026, 0, 1) + 5_000 },
    });
    await memory.write((tx) => tx.insertDelivery(lost, []));
    await start(new FillingSender(), { store });
    await platform.clock.advance(10_000);
    expect(isFull).toBe(true);
    expect(await listWaiting()).toHaveLength(1);
    isFull = false;
    await platform.clock.advance(1_000);
    expect(await listWaiting()).toEqual([]);
    const counts = await platform.queue.webhookCounts();
    expect(counts.get('ep_test')?.counts).toEqual({ given_up: 1 });
  });

  it('is attempted as soon as the store can be read again', async () => {
    const sender = new ScriptedSender();
    const memory = openSqliteStore({ path: ':memory:' });
    let isLost = false;
    const store: Store = {
      ...passOn(memory),
      read: (operation) =>
        isLost ? Promise.reject(new StoreUnavailableError('disk failed')) : memory.read(operation),
    };
    await start(sender, { store });
    await platform.submitWithWebhook(URL_A);
    const lease = await worker.takeOne();
    isLost = true;
    await worker.finish(lease, completed, { body: '1' });
    await platform.clock.advance(2_500);
    expect(sender.sent).toEqual([]);
    isLost = false;
    await platform.clock.advance(1_000);
    expect(sender.sent).toHaveLength(1);
  });

  it('is not sent again after it was received while the store fails', async () => {
    const sender = new ScriptedSender(() => undefined);
    const memory = openSqliteStore({ path: ':memory:' });
    let isFull = false;
    const store: Store = {
      ...passOn(memory),
      write: (operation) =>
        isFull ? Promise.reject(new StoreUnavailableError('disk full')) : memory.write(operation),
    };
    await start(sender, { store });
    await finishJob();
    isFull = true;
    sender.sent[0]?.answer(OK);
    await platform.clock.advance(10_000);
    expect(sender.sent).toHaveLength(1);
    isFull = false;
    await platform.clock.advance(1_000);
    expect(await listWaiting()).toEqual([]);
    await platform.clock.advance(60_000);
    expect(sender.sent).toHaveLength(1);
  });
});

describe('receivers', () => {
  it('delay no other receiver if they do not answer', async () => {
    const sender = new ScriptedSender(({ url }) => (url === URL_A ? undefined : OK));
    await start(sender);
    for (let job = 0; job < 10; job++) await finishJob(URL_A);
    await finishJob(URL_B);
    expect(sender.urls()).toEqual([URL_A, URL_B]);
  });

  it('get one attempt at a time after a failure, and several at once after a success', async () => {
    const sender = new ScriptedSender(() => BAD);
    await start(sender);
    await finishJob();
    sender.reply = () => undefined;
    for (let job = 0; job < 6; job++) await finishJob();
    expect(sender.sent).toHaveLength(2);
    sender.reply = () => OK;
    sender.sent[1]?.answer(OK);
    await letOthersRun();
    expect(sender.sent).toHaveLength(7);
  });

  it('leave capacity for receivers of others if all of one user hang', async () => {
    const sender = new ScriptedSender(() => undefined);
    await start(undefined);
    const now = platform.clock.now();
    const hanging = Array.from({ length: 200 }, (_, number) =>
      makeDelivery({ id: `d${number}`, userId: 'mallory', receiver: `r${number}.example` }),
    );
    const other = makeDelivery({ id: 'ada', userId: 'ada', receiver: 'r1.example', url: URL_A });
    await platform.store.write((tx) => {
      for (const delivery of [...hanging, other]) {
        tx.insertDelivery({ ...delivery, createdAt: now }, [Buffer.from('{}')]);
      }
    });
    const later = new Platform({ webhooks: () => sender, store: platform.store });
    await later.start();
    await letOthersRun();
    const users = sender.sent.map(({ delivery }) => delivery.userId);
    expect(users.filter((user) => user === 'mallory')).toHaveLength(8);
    expect(users).toContain('ada');
    const closing = later.queue.close();
    await later.clock.advance(DEFAULT_WEBHOOK_SETTINGS.closeMs);
    await closing;
  });
});

describe('the number of store reads is bounded', () => {
  /** Counts what is asked of it. */
  function countReads(): { store: Store; reads: number } {
    const memory = openSqliteStore({ path: ':memory:' });
    const counted = { store: memory, reads: 0 };
    const read: Store['read'] = (operation) => {
      counted.reads += 1;
      return memory.read(operation);
    };
    counted.store = { ...passOn(memory), read };
    return counted;
  }

  it('while a hanging receiver has more deliveries', async () => {
    const sender = new ScriptedSender(() => undefined);
    const counted = countReads();
    await start(sender, { store: counted.store });
    for (let job = 0; job < 6; job++) await finishJob();
    counted.reads = 0;
    await platform.clock.advance(1_000);
    expect(sender.sent).toHaveLength(1);
    expect(counted.reads).toBeLessThan(10);
    sender.reply = () => OK;
    sender.sent[0]?.answer(OK);
    while (sender.sent.length < 6) await letOthersRun();
  });

  it('for many receivers of which few get an attempt', async () => {
    const sender = new ScriptedSender();
    const counted = countReads();
    await start(undefined, { store: counted.store });
    const now = platform.clock.now();
    const due = Array.from({ length: 200 }, (_, number) =>
      makeDelivery({ id: `d${number}`, receiver: `r${number}.example`, createdAt: now, nextAt: 0 }),
    );
    await platform.store.write((tx) => {
      for (const delivery of due) tx.insertDelivery(delivery, [Buffer.from('{}')]);
    });
    counted.reads = 0;
    const limits = { maxConcurrent: 2, maxPerUser: 2, maxUnprovenPerUser: 2 };
    const settings = { webhooks: { ...DEFAULT_WEBHOOK_SETTINGS, ...limits } };
    const later = new Platform({ webhooks: () => sender, store: counted.store, settings });
    await later.start();
    while (sender.sent.length < due.length) await letOthersRun();
    expect(counted.reads).toBeLessThan(1_000);
    await later.queue.close();
  });
});

describe('a platform that shuts down', () => {
  it('waits briefly for running attempts and starts no others', async () => {
    const sender = new ScriptedSender(() => undefined);
    await start(sender);
    await finishJob();
    const closing = platform.queue.close();
    await letOthersRun();
    expect(sender.closed).toBe(0);
    sender.sent[0]?.answer(OK);
    await closing;
    expect(sender.closed).toBe(1);
    expect(await listWaiting()).toEqual([]);
  });

  it('aborts a longer attempt without counting it, and repeats it after the next start', async () => {
    const sender = new ScriptedSender(() => undefined);
    await start(sender);
    await finishJob();
    const closing = platform.queue.close();
    await platform.clock.advance(DEFAULT_WEBHOOK_SETTINGS.closeMs);
    await closing;
    expect(await listWaiting()).toMatchObject([{ attempts: 0 }]);
    sender.reply = () => OK;
    await platform.restart();
    await letOthersRun();
    expect(sender.sent).toHaveLength(2);
  });
});
