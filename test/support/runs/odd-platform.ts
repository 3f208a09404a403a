// A real platform whose worker link has one fault.
import { openPlatform } from '../../../src/platform/platform.ts';
import type { WorkerLink } from '../../../src/wire/link/worker-link.ts';

export type Oddity =
  | 'applies reports twice'
  | 'accepts any token'
  | 'forgets takeIds'
  | 'accepts old incarnations';

const ENDPOINT = 'test';
const TERMS = { leaseMs: 2_000, renewEveryMs: 600, takeWaitMs: 2_000 };

function sabotage(link: WorkerLink, oddity: Oddity): WorkerLink {
  const pretendApplied = async (...args: Parameters<WorkerLink['report']>) => {
    const answers = await link.report(...args);
    const isHidden = (answer: string) =>
      oddity === 'accepts any token' ? answer === 'superseded' : answer === 'duplicate';
    return answers.map((reply) =>
      isHidden(reply.answer) ? { answer: 'applied' as const } : reply,
    );
  };
  const newest = { incarnation: Number.MAX_SAFE_INTEGER };
  switch (oddity) {
    case 'applies reports twice':
    case 'accepts any token':
      return { ...link, report: pretendApplied };
    case 'forgets takeIds':
      return {
        ...link,
        take: (request, signal) =>
          link.take({ ...request, takeId: `${Date.now()}-${Math.random()}` }, signal),
      };
    case 'accepts old incarnations':
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
  const platform = await openPlatform(
    { endpoints: [ENDPOINT], settings: TERMS },
    { wrapLink: (link) => sabotage(link, oddity) },
  );
  const { close, firstKeys, url } = platform;
  if (!firstKeys) throw new Error('a new platform has keys');
  return {
    url,
    endpoint: ENDPOINT,
    key: firstKeys.worker,
    jobsKey: firstKeys.admin,
    [Symbol.asyncDispose]: close,
  };
}
