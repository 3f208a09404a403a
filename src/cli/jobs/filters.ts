// The filters of jobs that commands take as options.
import type { JobFilters } from '../../client.ts';
import { ERROR_CODES, JOB_STATUSES } from '../../wire/job/job.ts';
import { choice, list, type OptionValues, text, time } from '../options.ts';

export const filterOptions = {
  status: choice({
    choices: JOB_STATUSES,
    placeholder: 'STATUS',
    help: `only jobs with this status: ${JOB_STATUSES.join(', ')}`,
  }),
  tag: list({
    placeholder: 'TAG',
    help: 'only jobs with this tag; give the flag once for each, for jobs with all of them',
  }),
  error: choice({
    choices: ERROR_CODES,
    placeholder: 'CODE',
    help: 'only jobs of which an attempt failed with this code, such as handler_error',
  }),
  since: time({ help: 'only jobs that were submitted at or after this time, ISO 8601' }),
  until: time({ help: 'only jobs that were submitted at or before this time, ISO 8601' }),
  worker: text({
    placeholder: 'ID',
    help: 'only jobs whose running or last attempt this worker had',
  }),
};

/** Only what is given. */
export function filterOf(values: OptionValues<typeof filterOptions>): JobFilters {
  const { error: errorCode, since, status, tag: tags, until, worker: workerId } = values;
  return {
    ...(status !== undefined && { status }),
    ...(tags.length > 0 && { tags }),
    ...(errorCode !== undefined && { errorCode }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
    ...(workerId !== undefined && { workerId }),
  };
}
