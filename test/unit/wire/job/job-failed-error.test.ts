import { expect, it } from 'vitest';
import { JobFailedError } from '../../../../src/wire/job/job-failed-error.ts';

it('is an instance of each copy of the class: millrace/client has one of its own', async () => {
  const path = new URL('../../../../src/wire/job/job-failed-error.ts?copy', import.meta.url).href;
  const copy = await import(path);
  expect(copy.JobFailedError).not.toBe(JobFailedError);
  const error = new copy.JobFailedError({ id: 'job-1', status: 'FAILED' });
  expect(error).toBeInstanceOf(JobFailedError);
  expect(new Error('other')).not.toBeInstanceOf(JobFailedError);
});
