// Records a history: clients play stories while faults strike; then everything heals, the jobs end, and clients read all
// of them once more.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { flowReference, flowSummary } from '../../src/wire/job/flow-records.ts';
import { createRandom } from '../support/random.ts';
import { RecordingClient } from './client.ts';
import { collectFacts, isDone } from './facts.ts';
import { type History, type Limit, Recorder } from './history.ts';
import { check } from './rules.ts';
import { describeEndpoints, LEASE_MS, receiveWebhooks, type User } from './stand.ts';
import { LIMITED, type Scene, STORIES, type StoryName } from './stories.ts';

/** Resolves with the endpoint whose worker may have lost its leases. */
// biome-ignore lint/suspicious/noConfusingVoidType: most faults resolve with nothing.
type Strike = () => Promise<string | undefined | void>;
export type FaultGroup = Readonly<Record<string, Strike>>;

export interface Recording {
  seed: number;
  /** The second user has every third client, the first one all others. */
  users: readonly User[];
  /** URLs of platforms, or of proxies before them; each call goes to one of them. */
  urls: () => readonly string[];
  clients: number;
  /** How long clients begin stories, ms. */
  loadMs: number;
  stories: readonly StoryName[];
  /** Each client plays each story once, in this order. Default: random ones, until the load is over. */
  isOneRound?: boolean;
  /** See History. */
  areWorkersSteady?: boolean;
  /** Of the shared limit, as `addUsers` made it. Default: group. */
  limitKey?: Limit['key'];
  /** During the load, the faults of a group follow each other in random order. */
  faults?: readonly FaultGroup[];
  /** Longest time between two faults of a group, ms. Default 1,000. */
  calmMs?: number;
  /** Ends all faults, and restarts the platform, so that its answers come from disk. */
  heal?: () => Promise<void>;
  /** Returns the URL for the platform's webhooks, given that of the receiver. Default: the same. */
  passWebhooks?: (url: string) => string;
  requestLimitMs: number;
  /** Time for all jobs to end after the load, ms. Jobs that live longer break a rule. */
  settleMs: number;
}

const POLL_MS = 50;
const listedSchedules = z.object({
  schedules: z.array(
    z.looseObject({
      ...{ id: z.string(), name: z.string(), endpointId: z.string(), status: z.string() },
    }),
  ),
});
const listed = z.object({ jobs: z.array(z.looseObject({ id: z.string(), status: z.string() })) });

export async function record(recording: Recording): Promise<History> {
  const { areWorkersSteady = false, limitKey, seed, users } = recording;
  const described = describeEndpoints(users, limitKey);
  const name = `h${seed}`;
  const recorder = new Recorder({ seed, name, ...described, leaseMs: LEASE_MS, areWorkersSteady });
  const receiver = await receiveWebhooks(recorder);
  try {
    const run = new Run(recording, recorder, receiver.url);
    await run.load();
    await recording.heal?.();
    await run.settle();
    return recorder.history;
  } finally {
    receiver.closeAllConnections();
    receiver.close();
  }
}

interface Place {
  endpoint: string;
  client: RecordingClient;
}

class Run {
  readonly #recording: Recording;
  readonly #recorder: Recorder;
  readonly #webhookUrl: string;
  readonly #random: () => number;
  readonly #startedAt = Date.now();
  #isOpen = true;
  #tags = 0;

  constructor(recording: Recording, recorder: Recorder, webhookUrl: string) {
    this.#recording = recording;
    this.#recorder = recorder;
    this.#webhookUrl = recording.passWebhooks?.(webhookUrl) ?? webhookUrl;
    this.#random = createRandom(recording.seed);
  }

  async load(): Promise<void> {
    const { clients, faults, loadMs } = this.#recording;
    const load = { until: Date.now() + loadMs };
    const playing = Array.from({ length: clients }, (_, index) => this.#play(index, load));
    const striking = (faults ?? []).map((group, index) => this.#strike(group, index, load));
    await Promise.all([...playing, ...striking]);
    this.#isOpen = false;
  }

  async #play(index: number, { until }: { until: number }): Promise<void> {
    const { isOneRound = false, loadMs, seed, stories, users } = this.#recording;
    const random = createRandom(seed * 1_000 + index);
    const [me, other] = index % 3 === 2 ? users.toReversed() : users;
    if (!me || !other) throw new Error('two users are needed');
    const scene: Scene = {
      ...{ client: this.#connect(me), endpoint: me.endpoint, stranger: this.#connect(other) },
      random,
      nextTag: () => `${this.#recorder.history.name}-${++this.#tags}`,
      webhook: (tag) => `${this.#webhookUrl}/${tag}`,
      // Stories go on a little, so that most end, and then leave their jobs to the last reads.
      isOpen: () => this.#isOpen && Date.now() < until + loadMs / 4,
    };
    if (isOneRound) {
      for (const name of stories) await STORIES[name](scene);
      return;
    }
    while (Date.now() < until) {
      const name = stories[Math.floor(random() * stories.length)];
      if (name) await STORIES[name](scene);
    }
  }

  #connect({ key, user }: User): RecordingClient {
    const { requestLimitMs: limitMs, urls } = this.#recording;
    const chooseUrl = () => {
      const all = urls();
      return all[Math.floor(this.#random() * all.length)] ?? '';
    };
    return new RecordingClient(this.#recorder, {
      ...{ user, key, limitMs, chooseUrl, since: this.#startedAt },
    });
  }

  async #strike(group: FaultGroup, index: number, { until }: { until: number }): Promise<void> {
    const { calmMs = 1_000, seed } = this.#recording;
    const random = createRandom(seed + index);
    let left: [name: string, strike: Strike][] = [];
    for (;;) {
      await sleep(calmMs * (0.2 + 0.8 * random()));
      if (Date.now() > until) return;
      if (left.length === 0) left = Object.entries(group);
      for (const [name, strike] of left.splice(Math.floor(random() * left.length), 1)) {
        const from = this.#recorder.now();
        const endpoint = await strike();
        const to = this.#recorder.now();
        this.#recorder.note({ kind: 'fault', name, from, to, ...(endpoint && { endpoint }) });
      }
    }
  }

  /** Waits until all jobs have ended, also those whose submission got no answer, and reads them all. */
  async settle(): Promise<void> {
    const { settleMs, users } = this.#recording;
    const places = Object.entries(this.#recorder.history.endpoints).flatMap(([endpoint, of]) => {
      const owner = users.filter(({ user }) => user === of.user);
      return owner.map((user) => ({ endpoint, client: this.#connect(user) }));
    });
    const until = Date.now() + settleMs;
    for (const place of places) await this.#pauseSchedules(place, until);
    const known = new Set(this.#findIds());
    for (const { client, endpoint } of places) {
      for (; Date.now() < until; await sleep(POLL_MS)) {
        const answer = await client.list(endpoint);
        if (answer?.status !== 200) continue;
        const { jobs } = listed.parse(answer.body);
        for (const { id } of jobs.filter(({ id }) => !known.has(id))) {
          // Each job of a tick counts.
          const answer = await client.details(endpoint, id);
          if ((answer?.status ?? 500) < 500) known.add(id);
        }
        const own = new Set(this.#findIds());
        const isRead = jobs.every(({ id }) => known.has(id));
        if (isRead && jobs.every(({ id, status }) => !own.has(id) || !/^IN_/.test(status))) break;
      }
    }
    const flows = this.#findFlows();
    for (const { endpoint, id } of flows) {
      const client = places.find((place) => place.endpoint === endpoint)?.client;
      for (let isOver = false; !isOver && Date.now() < until; await sleep(POLL_MS)) {
        const answer = await client?.flowRecord(endpoint, id);
        isOver = answer?.status === 200 && flowSummary.parse(answer.body).status !== 'RUNNING';
      }
    }
    await this.#waitForWebhooks(until);
    this.#recorder.note({ kind: 'settled', at: this.#recorder.now() });
    for (const place of places) {
      await this.#read(place, until);
      await place.client.list(place.endpoint);
      await this.#read(place, until);
    }
    for (const { endpoint, id, jobs } of flows) {
      const client = places.find((place) => place.endpoint === endpoint)?.client;
      await client?.flowRecord(endpoint, id);
      for (const job of jobs) await client?.status(job.endpoint, job.id);
    }
  }

  #findFlows() {
    return this.#recorder.history.events.flatMap((event) => {
      if (event.kind !== 'call' || event.request.do !== 'flow' || !isDone(event)) return [];
      return [{ endpoint: event.request.endpoint, ...flowReference.parse(event.answer?.body) }];
    });
  }

  /** Those at the endpoint, also those whose creation got no answer. */
  async #pauseSchedules({ client, endpoint }: Place, until: number): Promise<void> {
    const left = async () => {
      const answer = await client.schedules(endpoint);
      if (answer?.status !== 200) return undefined;
      const { schedules } = listedSchedules.parse(answer.body);
      return schedules.filter(({ name, status }) => {
        return status === 'active' && name.startsWith(`${this.#recorder.history.name}-`);
      });
    };
    for (; Date.now() < until; await sleep(POLL_MS)) {
      const active = await left();
      if (active?.length === 0) return;
      for (const { endpointId, id } of active ?? []) await client.pause(endpointId, id);
    }
  }

  /** Reads each job that clients know, its stream, and the starts of its attempts if they are limited. */
  async #read({ client, endpoint }: Place, until: number): Promise<void> {
    const { jobs } = collectFacts(this.#recorder.history);
    for (const { body, id } of [...jobs.values()].filter((job) => job.endpoint === endpoint)) {
      const isAnswered = async () => ((await client.status(endpoint, id))?.status ?? 500) < 500;
      while (!(await isAnswered()) && Date.now() < until) await sleep(POLL_MS);
      if (body.input.chunks !== undefined) await client.page(endpoint, id, '0');
      if (body.policy?.group === LIMITED) await client.details(endpoint, id);
    }
  }

  #findIds(): Iterable<string> {
    return collectFacts(this.#recorder.history).jobs.keys();
  }

  /** A webhook may come later than the end of its job. */
  async #waitForWebhooks(until: number): Promise<void> {
    const isMissing = () =>
      check(this.#recorder.history).some(({ rule }) => rule === 'webhook-missing');
    while (Date.now() < until && isMissing()) await sleep(4 * POLL_MS);
  }
}
