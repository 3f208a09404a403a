// For each rule, a lie that breaks it: how a proxy falsifies answers, and in which story of a client.
import type { Answered, Lie } from './liar.ts';
import type { RuleName } from './rules.ts';
import type { StoryName } from './stories.ts';

/** `create`: a lie may have a state, so each proxy gets its own. */
type LieCase = [title: string, story: StoryName, create: () => Lie];

type Json = Record<string, unknown>;

const DETAILS = /\/jobs\/[^?]+$/;
const SCHEDULES = /\/schedules\?/;
const CANCEL = /\/cancel\//;
const FLOWS = /\/flows$/;
const LIST = /\/jobs\?/;
const PURGE = /\/purge-queue$/;
const RETRY = /\/retry\//;
const RUN = /\/run$/;
const STATUS = /\/status\//;
const STREAM = /\/stream\//;
const WEBHOOK = /^\/webhooks/;

export const LIES: Record<RuleName, LieCase> = {
  forgotten: [
    'acknowledges a job that it does not pass on',
    'plain',
    () => on(RUN, async () => json({ id: crypto.randomUUID(), status: 'IN_QUEUE' })),
  ],
  'unexpected-status': [
    'refuses the key of the owner',
    'plain',
    () => on(STATUS, async () => ({ ...json({}), status: 401 })),
  ],
  'list-lacks-job': [
    'leaves a job out of lists',
    'plain',
    () => {
      let hidden: unknown;
      const note = rewrite(RUN, (answer) => {
        hidden = answer['id'];
        return answer;
      });
      const hide = rewrite(LIST, ({ jobs }) => ({
        jobs: asArray(jobs).filter(({ id }) => id !== hidden),
      }));
      return (asked, forward) => note(asked, () => hide(asked, forward));
    },
  ],
  'terminal-reopens': [
    'shows an ended job as running, once',
    'plain',
    () => rewriteSecondEnd((record) => ({ id: record['id'], status: 'IN_PROGRESS', attempt: 1 })),
  ],
  'terminal-changes': [
    'shows a completed job as failed, once',
    'plain',
    () => rewriteSecondEnd((record) => ({ ...record, status: 'FAILED' })),
  ],
  'outcomes-disagree': [
    'changes a webhook',
    'cancel',
    () =>
      on(WEBHOOK, ({ body }, forward) => {
        return forward({ body: body.replace(/"status":"[A-Z]+"/, '"status":"TIMED_OUT"') });
      }),
  ],
  'attempt-goes-back': [
    'shows a later attempt than there is',
    'retry',
    () => rewrite(STATUS, (job) => (job['status'] === 'FAILED' ? { ...job, attempt: 9 } : job)),
  ],
  'attempt-lost': [
    'shows a second attempt after chunks of the first',
    'events',
    () =>
      rewrite(STATUS, ({ output, ...job }) => {
        if (job['status'] !== 'COMPLETED') return { ...job, output };
        return { ...job, attempt: 2, output: { ...Object(output), attempt: 2, run: 'x' } };
      }),
  ],
  'old-attempt-counts': [
    'shows the output of another attempt',
    'sync',
    () => rewrite(/\/runsync/, (job) => ({ ...job, attempt: 2 })),
  ],
  'attempt-runs-twice': [
    'mixes chunks of two runs',
    'events',
    () => rewriteChunks((chunks) => chunks.map((text) => text.replace(/"run":"./, '"run":"x'))),
  ],
  'not-its-own': [
    'gives a job the ID of another one',
    'batch',
    () => rewrite(/\/jobs$/, ({ jobs }) => ({ jobs: asArray(jobs).toReversed() })),
  ],
  'outcome-without-cause': [
    'cancels a job that nobody cancels',
    'delay',
    () =>
      on(RUN, async ({ path }, forward) => {
        const answer = await forward();
        const { id } = JSON.parse(answer.body);
        await forward({ path: path.replace(RUN, `/cancel/${id}`), body: '' });
        return answer;
      }),
  ],
  'cancel-lost': ['forgets a cancel', 'cancel', () => pretend(CANCEL, 'CANCELLED')],
  'retry-lost': ['forgets a retry', 'retry', () => pretend(RETRY, 'IN_QUEUE')],
  'purge-lost': [
    'forgets a purge',
    'purge',
    () => on(PURGE, async () => json({ removed: 3, status: 'completed' })),
  ],
  'key-has-two-jobs': [
    'submits a job with two keys',
    'keyed',
    () =>
      on(RUN, async ({ body }, forward) => {
        const { idempotencyKey, ...rest } = JSON.parse(body);
        const other = { ...rest, idempotencyKey: `${idempotencyKey}-2` };
        await forward({ body: JSON.stringify(other) });
        return forward();
      }),
  ],
  'submission-makes-two-jobs': [
    'submits a job twice',
    'plain',
    () =>
      on(RUN, async (_asked, forward) => {
        await forward();
        return forward();
      }),
  ],
  'key-body': [
    'accepts another body with the same key',
    'keyed',
    () =>
      on(RUN, async ({ body }, forward) => {
        const answer = await forward();
        const { idempotencyKey, ...rest } = JSON.parse(body);
        return answer.status === 409 ? forward({ body: JSON.stringify(rest) }) : answer;
      }),
  ],
  'stream-gap': [
    'drops a chunk',
    'events',
    () => rewriteChunks(([first = '', _second, ...rest]) => [first, ...rest]),
  ],
  'stream-repeats': [
    'repeats a chunk',
    'events',
    () => rewriteChunks(([first = '', ...rest]) => [first, first, ...rest]),
  ],
  'stream-order': [
    'swaps two chunks',
    'events',
    () => rewriteChunks(([first = '', second = '', ...rest]) => [second, first, ...rest]),
  ],
  'stream-resumes-elsewhere': [
    'resumes a stream at its start',
    'events',
    () =>
      on(STREAM, ({ headers }, forward) => {
        return forward({ headers: { ...headers, 'last-event-id': '0' } });
      }),
  ],
  'stream-incomplete': [
    'loses the last chunk',
    'events',
    () => rewriteChunks((chunks) => chunks.slice(0, -1)),
  ],
  'delay-cut': ['starts a delayed job at once', 'delay', () => dropPolicy()],
  'rate-exceeded': [
    'takes jobs out of their limit, which start at once',
    'paced',
    () => dropPolicy(),
  ],
  'limit-exceeded': [
    'takes jobs out of their limit, which run long',
    'limited',
    () => dropPolicy(),
  ],
  'group-overlaps': ['takes jobs out of their group', 'group', () => dropPolicy()],
  'flow-order': ['lets the parts of a flow start at once', 'flow', () => rewriteStart()],
  'flow-outcome': [
    'takes edges that skip for edges that fail',
    'flow',
    () =>
      on(FLOWS, ({ body }, forward) =>
        forward({ body: body.replaceAll('"onFailure":"skip"', '"onFailure":"fail"') }),
      ),
  ],
  'flow-miscounts': [
    'counts a part of a flow twice',
    'flow',
    () =>
      rewrite(/\/flows\/[^/?]+$/, ({ counts, ...flow }) => {
        const { completed } = Object(counts);
        return { ...flow, counts: { ...Object(counts), completed: completed + 1 } };
      }),
  ],
  'foreign-read': [
    'shows the jobs of another user',
    'foreign',
    () => {
      let authorization = '';
      return on(/\/work\//, ({ headers, method }, forward) => {
        authorization ||= headers['authorization'] ?? '';
        return forward(method === 'GET' ? { headers: { ...headers, authorization } } : {});
      });
    },
  ],
  'webhook-missing': ['loses a webhook', 'retry', () => on(WEBHOOK, async () => json({}))],
  'webhook-repeats': [
    'sends a webhook with two IDs',
    'retry',
    () =>
      on(WEBHOOK, async ({ headers }, forward) => {
        await forward();
        return forward({ headers: { ...headers, 'webhook-id': 'another' } });
      }),
  ],
  'not-terminal': [
    'never shows the end of a job',
    'plain',
    () => {
      const hide = (record: Json) => ({ id: record['id'], status: 'IN_PROGRESS', attempt: 1 });
      const inLists = rewrite(LIST, ({ jobs }) => ({ jobs: asArray(jobs).map(hide) }));
      const inStatus = rewrite(STATUS, hide);
      return (asked, forward) => inLists(asked, () => inStatus(asked, forward));
    },
  ],
  'tick-makes-two-jobs': [
    'shows all jobs of a schedule as those of one tick',
    'schedule',
    () =>
      rewrite(DETAILS, ({ schedule, ...job }) => {
        return schedule ? { ...job, schedule: { ...Object(schedule), tickAt: 1 } } : job;
      }),
  ],
  'tick-lost': [
    'counts fewer jobs of a schedule',
    'schedule',
    () =>
      rewrite(SCHEDULES, ({ schedules }) => ({
        schedules: asArray(schedules).map((each) => ({ ...each, jobs: Number(each['jobs']) - 1 })),
      })),
  ],
};

/** Applies the lie to requests for this path, and passes on all others. */
function on(path: RegExp, lie: Lie): Lie {
  return (asked, forward) => (path.test(asked.path) ? lie(asked, forward) : forward());
}

function json(body: unknown): Answered {
  const headers = { 'content-type': 'application/json' };
  return { status: 200, headers, body: JSON.stringify(body) };
}

/** Changes the JSON of answers with status 200. */
function rewrite(path: RegExp, change: (body: Json) => Json): Lie {
  return on(path, async (_asked, forward) => {
    const answer = await forward();
    return answer.status === 200 ? json(change(JSON.parse(answer.body))) : answer;
  });
}

function rewriteSecondEnd(change: (record: Json) => Json): Lie {
  let ends = 0;
  return rewrite(STATUS, (record) => {
    return /^IN_/.test(String(record['status'])) || ++ends !== 2 ? record : change(record);
  });
}

/** Changes the chunks of an event stream, each with its position. All other events follow them unchanged. */
function rewriteChunks(change: (chunks: string[]) => string[]): Lie {
  return on(STREAM, async (_asked, forward) => {
    const answer = await forward();
    if (!answer.headers['content-type']?.startsWith('text/event-stream')) return answer;
    const events = answer.body.split(/(?<=\n\n)/);
    const chunks = events.filter((text) => text.startsWith('id:'));
    const others = events.filter((text) => !text.startsWith('id:'));
    return { ...answer, body: [...change(chunks), ...others].join('') };
  });
}

/** Answers with success, and does not pass the request on. */
function pretend(path: RegExp, status: string): Lie {
  return on(path, async (asked) => json({ id: asked.path.split('/').at(-1), status }));
}

/** Of all outputs: the handlers began long ago. */
function rewriteStart(): Lie {
  return rewrite(STATUS, ({ output, ...job }) => {
    return output ? { ...job, output: { ...Object(output), startedAt: 1 } } : job;
  });
}

/** Of a submission of one job or of several. */
function dropPolicy(): Lie {
  return on(/\/(run|jobs)$/, ({ body }, forward) => {
    const drop = (name: string, value: unknown) => (name === 'policy' ? undefined : value);
    return forward({ body: JSON.stringify(JSON.parse(body || '{}'), drop) });
  });
}

function asArray(value: unknown): Json[] {
  return Array.isArray(value) ? value : [];
}
