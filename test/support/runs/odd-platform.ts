// A real platform whose worker link does one thing wrong, on request.
import { createServer } from '../../../src/api/server.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Endpoints } from '../../../src/control/endpoints/endpoints.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite.ts';
import type { WorkerLink } from '../../../src/wire/link/worker-link.ts';

export type Oddity =
  | 'applies reports twice'
  | 'takes any token'
  | 'forgets takeIds'
  | 'lets old processes in';

const ENDPOINT = 'test';
const TERMS = { leaseMs: 2_000, renewEveryMs: 600, takeWaitMs: 2_000 };

function sabotage(link: WorkerLink, oddity: Oddity): WorkerLink {
  const pretendApplied = async (...args: Parameters<WorkerLink['report']>) => {
    const answers = await link.report(...args);
    const isHidden = (answer: string) =>
      oddity === 'takes any token' ? answer === 'superseded' : answer === 'duplicate';
    return answers.map((reply) =>
      isHidden(reply.answer) ? { answer: 'applied' as const } : reply,
    );
  };
  const newest = { incarnation: Number.MAX_SAFE_INTEGER };
  switch (oddity) {
    case 'applies reports twice':
    case 'takes any token':
      return { ...link, report: pretendApplied };
    case 'forgets takeIds':
      return {
        ...link,
        take: (request, signal) =>
          link.take({ ...request, takeId: `${Date.now()}-${Math.random()}` }, signal),
      };
    case 'lets old processes in':
      return {
        hello: (hello) => link.hello({ ...hello, ...newest }),
        take: (request, signal) => link.take({ ...request, ...newest }, signal),
        renew: (request, signal) => link.renew({ ...request, ...newest }, signal),
        report: (request) => link.report({ ...request, ...newest }),
        bye: (bye) => link.bye({ ...bye, ...newest }),
      };
  }
}

export async function startOddPlatform(oddity: Oddity) {
  const store = openSqliteStore({ path: ':memory:' });
  const clock = systemClock;
  const keys = await Keys.open({ store, clock });
  const endpoints = await Endpoints.open({ store, clock });
  await endpoints.ensureEndpoint(ENDPOINT);
  const { key } = await keys.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
  const { key: jobsKey } = await keys.issue({ name: 'admin', scopes: ['admin'] });
  const queue = new Queue({ store, clock, log: silentLog, settings: TERMS });
  const link = queue.link.bind(queue);
  queue.link = (endpointId) => sabotage(link(endpointId), oddity);
  await queue.start();
  const place = { host: '127.0.0.1', port: 0, access: 'keys', version: '0.0.0' } as const;
  const server = createServer({ queue, keys, endpoints, log: silentLog, clock, ...place });
  const { url } = await server.start();
  return {
    ...{ url, endpoint: ENDPOINT, key, jobsKey },
    async close() {
      await server.close();
      await store.close();
    },
  };
}
