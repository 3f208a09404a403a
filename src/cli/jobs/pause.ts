// `millrace pause` and `millrace resume`: hold back the jobs of an endpoint, or of one of its groups, and let them start again.
import { callOf } from '../../client/api-caller.ts';
import type { Pause, PauseList } from '../../wire/resources/pause.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { flag, integer, text, time, UsageError } from '../options.ts';
import { formatTable } from '../output.ts';
import { defineApiCommand, showRecord } from '../resources/resource-command.ts';

const group = text({
  placeholder: 'GROUP',
  help: 'only the jobs of this group; default: all jobs of the endpoint',
});

const noGroup = flag({ help: 'only the jobs without a group' });

/** A year. */
const MAX_SECONDS = 31_622_400;

const pauseOptions = {
  group,
  noGroup,
  for: integer({ min: 1, max: MAX_SECONDS, unit: 's', help: 'resume after this time' }),
  until: time({ help: 'resume at this time, ISO 8601' }),
  reason: text({ help: 'why, for people: jobs that wait show it' }),
  list: flag({ help: 'print the pauses of the endpoint and its groups; change nothing' }),
};

export const pauseCommand = defineApiCommand({
  name: 'millrace pause',
  description: [
    'Holds back the jobs of an endpoint. It goes on to accept jobs, and its running jobs end. No worker gets another job of it, ' +
      'also none that you have started yourself. The pause survives restarts of the platform.',
  ],
  id: 'endpoint ID or name',
  options: pauseOptions,
  examples: [
    'millrace pause echo',
    "millrace pause echo --group customer-7 --for 3600 --reason 'their quota is used up'",
    'millrace pause echo --list',
  ],
  act: async ({ caller, id: endpoint, json, values, width }) => {
    const of = { endpoint };
    if (values.list) {
      const list = await caller.json<PauseList>(callOf(JOB_ROUTES.getPauses, of));
      return json ? JSON.stringify(list) : describePauses(list.pauses, width);
    }
    const { reason } = values;
    const until = readEnd(values);
    const body = {
      ...readTarget(values),
      ...(until !== undefined && { until }),
      ...(reason !== undefined && { reason }),
    };
    const pause = await caller.json<Pause>({ ...callOf(JOB_ROUTES.pauseQueue, of), body });
    return showRecord(json ? pause : showTimes(pause), json);
  },
});

export const resumeCommand = defineApiCommand({
  name: 'millrace resume',
  description: [
    'Ends a pause. Without --group and --no-group it is that of the endpoint; paused groups stay paused. Has no effect without a pause.',
  ],
  id: 'endpoint ID or name',
  options: { group, noGroup },
  examples: ['millrace resume echo', 'millrace resume echo --group customer-7'],
  act: async ({ caller, id: endpoint, json, values }) => {
    await caller.answer({
      ...callOf(JOB_ROUTES.resumeQueue, { endpoint }),
      body: readTarget(values),
    });
    return json ? '{}' : 'resumed';
  },
});

/** @throws UsageError */
function readTarget({
  group: ofGroup,
  noGroup: isNone,
}: {
  group: string | undefined;
  noGroup: boolean;
}) {
  if (!isNone) return ofGroup === undefined ? {} : { group: ofGroup };
  if (ofGroup !== undefined) throw new UsageError('--group and --no-group: give one of them');
  return { group: '' };
}

/** @throws UsageError */
function readEnd(values: {
  for: number | undefined;
  until: number | undefined;
}): number | undefined {
  if (values.for !== undefined && values.until !== undefined) {
    throw new UsageError('--for and --until: give one of them');
  }
  if (values.for !== undefined) return Date.now() + values.for * 1_000;
  return values.until;
}

function describePauses(pauses: readonly Pause[], width: number): string {
  if (pauses.length === 0) return 'nothing is paused';
  const rows = pauses.map((pause) => {
    const { reason, since, until } = showTimes(pause);
    return [nameTarget(pause), since, until ?? '', reason ?? ''];
  });
  return formatTable(['PAUSED', 'SINCE', 'UNTIL', 'REASON'], rows, width);
}

function nameTarget({ group: ofGroup }: Pause): string {
  if (ofGroup === null) return 'endpoint';
  return ofGroup === '' ? 'jobs without a group' : `group ${ofGroup}`;
}

function showTimes({ since, until, ...pause }: Pause) {
  const iso = (at: number) => new Date(at).toISOString();
  return { ...pause, since: iso(since), until: until === null ? null : iso(until) };
}
