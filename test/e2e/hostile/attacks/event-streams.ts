// Many event streams of one user, each of which asks for a large topic in its own way.
import type { Attack, AttackContext, Target } from '../attack.ts';
import { callOwn, inTurns, RawExchange, settle } from '../raw-http.ts';

/** Records of 200 KB: the topic `pods` has 2 MB. */
const PODS = 10;
const RECORD_BYTES = 200_000;
const ENV = { A: 'x'.repeat(RECORD_BYTES / 2), B: 'x'.repeat(RECORD_BYTES / 2) };
/** Topics of one stream. */
const TOPICS = 16;
/** Streams share their reads: one for all every 2 s. */
const MAX_READS = 60;
/** What each stream gets before the attack is over. */
const SNAPSHOTS = 2;

/** Of the process that prepared the attack, which is the one that sends it. A pod that can be changed. */
let pod = '';

/** The records of pods that are TERMINATED stay, and need no processors. */
async function preparePods(target: Target): Promise<void> {
  const cpu = { id: 'cpu', vcpuCount: 2, memory: 1 };
  for (let n = 1; n <= PODS; n++) {
    const creation = { name: `large-${n}`, image: 'none', args: 'true', cpu, env: ENV };
    pod = String((await callOwn(target, '/v2/pods', creation))['id']);
    if (n < PODS) await endPod(target, pod);
  }
}

async function endPod(target: Target, id: string): Promise<void> {
  await callOwn(target, `/v2/pods/${id}/action`, { action: 'terminate' });
}

/** Opens the streams, changes a pod while others are served, and ends the streams and the pod. */
async function listen(
  { hold, note, target }: AttackContext,
  streams: readonly { key: string; topics: string }[],
  snapshotBytes: number,
): Promise<void> {
  const open = streams.map(({ key, topics }) => {
    return new RawExchange(target, { key, path: `/v1/events?topics=${topics}` });
  });
  const headers = { authorization: target.key, 'content-type': 'application/json' };
  let changes = 0;
  const rename = setInterval(() => {
    changes += 1;
    const change = { method: 'PATCH', headers, body: JSON.stringify({ name: `n${changes}` }) };
    fetch(`${target.url}/v2/pods/${pod}`, change).then(
      (response) => response.arrayBuffer(),
      () => {},
    );
  }, 200);
  await settle(open, ({ bytes }) => bytes >= SNAPSHOTS * snapshotBytes);
  await hold();
  clearInterval(rename);
  for (const exchange of open) {
    note(exchange.bytes < SNAPSHOTS * snapshotBytes ? 'slow' : exchange.state);
    exchange.close();
  }
  await endPod(target, pod);
}

const shared = {
  platform: 'cramped',
  answers: ['200'],
  growthMb: 200,
  eventReads: MAX_READS,
  prepare: preparePods,
} as const;

export const eventStreamAttacks: Attack[] = [
  {
    ...{ name: 'event streams of 2 MB, each with its own scopes', ...shared },
    count: { short: 190, full: 190 },
    async send(context) {
      const { count, target } = context;
      const streams: { key: string; topics: string }[] = [];
      await inTurns({ count, width: 8 }, async (n) => {
        const scopes = ['pods:read', 'pods:write', `jobs:write:endpoint-${n}`];
        const { key } = await callOwn(target, '/v1/keys', { name: `k${n}`, scopes });
        streams.push({ key: String(key), topics: 'pods' });
      });
      await listen(context, streams, PODS * RECORD_BYTES);
    },
  },
  {
    ...{ name: 'event streams with many spellings of one pod', ...shared },
    count: { short: 128, full: 128 },
    async send(context) {
      const { count, target } = context;
      const spellings = Array.from({ length: count }, (_, n) => `pod:${spell(pod, n)}`);
      const streams = Array.from({ length: Math.ceil(count / TOPICS) }, (_, n) => ({
        key: target.key,
        topics: spellings.slice(n * TOPICS, (n + 1) * TOPICS).join(','),
      }));
      await listen(context, streams, TOPICS * RECORD_BYTES);
    },
  },
];

/** One of 2^n spellings: each bit of `n` says whether a character is percent-encoded. The server decodes the query once. */
function spell(name: string, n: number): string {
  return [...name]
    .map((char, at) => ((n >> at) & 1 ? `%25${char.charCodeAt(0).toString(16)}` : char))
    .join('');
}
