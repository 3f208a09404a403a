// What the page of a batch shows of its failed lines, in each form of batches.
import { expect, it } from 'vitest';
import { readFailedLines } from '../../../console/src/pages/batches/failed-lines.ts';

it.each([
  [{ id: 'a', job: { id: 'j', error: { message: 'm' } } }, ['a', 'j', 'm']],
  [{ id: 'a', job: { id: 'j', status: 'CANCELLED' } }, ['a', 'j', 'CANCELLED']],
  [{ id: 'a', error: { code: 'batch_expired', message: 'm' } }, ['a', undefined, 'm']],
  [
    {
      ...{ id: 'x', custom_id: 'a', error: null },
      response: { status_code: 500, request_id: 'j', body: { error: { message: 'm' } } },
    },
    ['a', 'j', 'm'],
  ],
  [
    { custom_id: 'a', response: { status_code: 500, request_id: 'j', body: 'text' }, error: null },
    ['a', 'j', '500'],
  ],
  [{ id: 'a', status: 'FAILED', error: 'm' }, ['a', undefined, 'm']],
])('shows name, job and reason of the failed line %j', (line, [name, jobId, reason]) => {
  const { lines } = readFailedLines(`${JSON.stringify(line)}\n`, { isWhole: true });
  expect(lines).toEqual([{ name, jobId, reason }]);
});

it('leaves out a line that is cut, and says that there are more', () => {
  const text = '{"id":"a","status":"FAILED"}\n{"id":"b","st';
  expect(readFailedLines(text, { isWhole: false })).toEqual({
    lines: [{ name: 'a', jobId: undefined, reason: 'FAILED' }],
    hasMore: true,
  });
});
