// Pages of failed jobs over several endpoints and queues.
import { expect, it, onTestFinished, vi } from 'vitest';
import type { OwnerNode } from '../../../src/api/forwarding/forwarding-options.ts';
import { NodeClient } from '../../../src/api/nodes/node-client.ts';
import { readClusterFailed } from '../../../src/platform/nodes/cluster-reads.ts';
import { type FailedPage, mergeFailed } from '../../../src/queue/job-lists.ts';
import { SqlJobReader } from '../../../src/store/sql/sql-job-reader.ts';
import { startPlatform, takeJob } from '../../support/api/platform.ts';

function page(positions: readonly number[], next?: number): FailedPage {
  const jobs = positions.map((position) => ({
    ...{ id: `job-${position}`, status: 'FAILED' as const, attempt: 1, submittedAt: position },
    ...{ delayTime: 0, executionTime: 0, endpointId: 'e', position, endedAt: position },
  }));
  return next === undefined ? { jobs } : { jobs, next };
}

const read = ({ jobs, next }: FailedPage) => [jobs.map(({ position }) => position), next];

it.each<[string, FailedPage[], ReturnType<typeof read>]>([
  ['of one queue', [page([9, 7], 7)], [[9, 7], 7]],
  ['of two queues that are at their end', [page([9, 4]), page([6])], [[9, 6, 4], undefined]],
  [
    'without jobs behind which another queue may have more',
    [page([9, 4]), page([7], 6)],
    [[9, 7], 6],
  ],
  ['cut at the limit', [page([9, 8]), page([7, 6])], [[9, 8, 7], 7]],
  ['with all jobs of the last position', [page([9, 8, 7]), page([7])], [[9, 8, 7, 7], undefined]],
  ['of a queue that has found nothing yet', [page([], 500), page([9])], [[], 500]],
])('a page %s', (_case, pages, merged) => {
  expect(read(mergeFailed(pages, 3))).toEqual(merged);
});

it('reads about as many jobs as a page of many endpoints shows, and no job twice', async () => {
  const platform = await startPlatform();
  const { endpoints, queue } = platform;
  const ids = Array.from({ length: 30 }, (_, n) => `e${n}`);
  for (const id of ids) await endpoints.ensureEndpoint(id);
  // All failures but one are of one endpoint.
  for (const id of ['e0', ...Array.from({ length: 9 }, () => 'e7')]) {
    await platform.post(`/v2/${id}/run`, { input: {} });
    await (await takeJob({ link: queue.link(id) })).fail('never');
  }
  const jobs = vi.spyOn(SqlJobReader.prototype, 'jobs');
  onTestFinished(() => jobs.mockRestore());
  const first = await queue.jobs.listFailed(ids, { limit: 4 });
  const second = await queue.jobs.listFailed(ids, { limit: 9, before: first.next });
  expect(first.jobs.map(({ endpointId }) => endpointId)).toEqual(Array(4).fill('e7'));
  expect(second.jobs.map(({ endpointId }) => endpointId)).toEqual([...Array(5).fill('e7'), 'e0']);
  expect(new Set([...first.jobs, ...second.jobs].map(({ id }) => id)).size).toBe(10);
  expect(second.next).toBeUndefined();
  // Endpoints without failures are not read.
  expect(jobs.mock.calls.length).toBeLessThan(10);
});

it('lists endpoints of a node that does not answer as unreachable, beside the others', async () => {
  const { queue: queues } = await startPlatform();
  vi.spyOn(queues.jobs, 'listFailed').mockResolvedValue(page([9]));
  const client = new NodeClient({ secrets: ['s'] });
  const call = vi.spyOn(client, 'call').mockImplementation(async (url) => {
    if (url === 'http://gone') throw new Error('gone');
    return page([8]);
  });
  const places: Record<string, OwnerNode> = {
    mine: { kind: 'here' },
    theirs: { kind: 'node', url: 'http://other' },
    lost: { kind: 'node', url: 'http://gone' },
  };
  const placement = { find: (id = '') => places[id] ?? { kind: 'none' as const } };
  const ids = [...Object.keys(places), 'nobody'];
  const listing = { limit: 20, errorCode: 'handler_error' } as const;
  const listed = await readClusterFailed({ client, placement, queues }, ids, listing);
  expect(listed.jobs.map(({ position }) => position)).toEqual([9, 8]);
  expect(listed.unreachable).toEqual(['nobody', 'lost']);
  const sent = { endpointIds: ['theirs'], listing };
  expect(call).toHaveBeenCalledWith('http://other', 'failed', sent, expect.anything());
});
