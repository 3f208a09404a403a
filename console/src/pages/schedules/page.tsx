// The schedules of jobs: their next ticks and their last ones, create, change, pause, trigger and delete.
import type { ScheduleRecord } from '../../../../src/client.ts';
import { SCHEDULE_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';
import { FormExtras, readExtras } from './form-extras.tsx';

const COLUMNS = [
  { name: 'State' },
  { name: 'Endpoint' },
  { name: 'When' },
  { name: 'Next ticks' },
  { name: 'Last ticks' },
  { name: 'Jobs', isNumber: true },
  { name: 'Run', isHidden: true },
];

const STATES: Readonly<Record<ScheduleRecord['status'], { text: string; tone: Tone }>> = {
  active: { text: 'Active', tone: 'good' },
  paused: { text: 'Paused', tone: 'warn' },
  ended: { text: 'Ended', tone: 'plain' },
};

/** Ticks of a row; the title has all that the platform shows. */
const SHOWN_TICKS = 3;

const TARGET = {
  create: (values: Parameters<typeof platform.schedules.create>[0]) =>
    platform.schedules.create({ ...values, ...readExtras() }),
  update: (id: string, values: Parameters<typeof platform.schedules.update>[1]) =>
    platform.schedules.update(id, { ...values, ...readExtras() }),
};

export function Page() {
  return (
    <ResourceList
      title="Schedules"
      kind="schedule"
      resource={platform.schedules}
      everyMs={5_000}
      mayChange={() => may('jobs:write')}
      form={(props) => (
        <ResourceForm noun="schedule" fields={SCHEDULE_FIELDS} target={TARGET} {...props}>
          <FormExtras input={props.opened === 'new' ? {} : props.opened.input} />
        </ResourceForm>
      )}
      columns={COLUMNS}
      cells={(schedule, reload) => <Cells schedule={schedule} reload={reload} />}
      deletion={() => 'Its jobs stay.'}
      empty={
        <Empty
          title="No schedules yet"
          command="millrace schedules create --name nightly --endpoint echo --cron '30 2 * * *'"
        >
          A schedule makes jobs of an endpoint at given times. Create one:
        </Empty>
      }
    />
  );
}

function Cells({ reload, schedule }: { schedule: ScheduleRecord; reload: () => void }) {
  const { endpointId, endpointName, id, jobs, lastTicks, name, nextTicks, status } = schedule;
  const act = (call: () => Promise<unknown>) => async () => {
    await call();
    reload();
  };
  const isPaused = status === 'paused';
  return (
    <>
      <td>
        <Badge {...STATES[status]} />
      </td>
      <td>
        <a href={hrefOf(pathOf(endpointId))}>{endpointName}</a>
      </td>
      <td class="mono">{describeWhen(schedule)}</td>
      <td class="nowrap" title={nextTicks.join('\n')}>
        {nextTicks.slice(0, SHOWN_TICKS).map((at) => (
          <div key={at}>
            <Time at={at} as="clock" />
          </div>
        ))}
      </td>
      <td class="nowrap">
        {lastTicks.slice(0, SHOWN_TICKS).map(({ at, count, jobId, skipped }) => (
          <div key={jobId ?? at}>
            <Time at={at} />{' '}
            {jobId === undefined ? (
              <small>{describeSkipped(skipped, count)}</small>
            ) : (
              <a href={hrefOf(`${pathOf(endpointId)}/jobs/${jobId}`)}>job</a>
            )}
          </div>
        ))}
      </td>
      <td class="number">{jobs}</td>
      <td class="number">
        {may('jobs:write') && (
          <span class="row-actions">
            <Confirm
              label={isPaused ? 'Resume' : 'Pause'}
              question={`${isPaused ? 'Resume' : 'Pause'} the schedule ${name}?`}
              act={act(() => platform.schedules.update(id, { paused: !isPaused }))}
            >
              <p>The ticks of a pause are not made up for.</p>
            </Confirm>
            <Confirm
              label="Trigger"
              question={`Make a job of ${name} now?`}
              act={act(() => platform.schedules.trigger(id))}
            />
          </span>
        )}
      </td>
    </>
  );
}

function describeWhen({ at, cron, every, timeZone }: ScheduleRecord): string {
  if (cron !== null) return `${cron} (${timeZone})`;
  return every === null ? `once, ${at}` : `every ${every / 1_000} s`;
}

const REASONS = { missed: 'missed', overlap: 'overlap', queue_full: 'queue full' };

function describeSkipped(skipped: keyof typeof REASONS = 'missed', count = 1): string {
  return count > 1 ? `${count} ${REASONS[skipped]}` : REASONS[skipped];
}
