// `millrace schedules`: schedules of jobs, their next ticks, and their last jobs.
import type { ApiCaller } from '../../client/api-caller.ts';
import { connectSchedules } from '../../client/platform-client.ts';
import { SCHEDULE_FIELDS } from '../../wire/resources/fields.ts';
import type { ScheduleRecord } from '../../wire/resources/schedule.ts';
import type { CommandGroup, Verb } from '../command.ts';
import { type OptionValues, text, UsageError } from '../options.ts';
import { fieldOptions, parseObject, readFields, readObjectFile } from './request-body.ts';
import {
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  showRecord,
} from './resource-command.ts';

const inputOptions = {
  input: text({ placeholder: 'JSON', help: 'input of each job, a JSON object; default: {}' }),
  inputFile: text({
    placeholder: 'FILE',
    help: 'file with the input of each job, a JSON object; - reads standard input',
  }),
};

/** @throws UsageError */
function composeInput({ input, inputFile }: OptionValues<typeof inputOptions>) {
  if (input !== undefined && inputFile !== undefined) {
    throw new UsageError('give one of --input JSON and --input-file FILE');
  }
  if (input !== undefined) return { input: parseObject('--input', input) };
  return inputFile === undefined ? {} : { input: readObjectFile('--input-file', inputFile) };
}

const body = { options: inputOptions, compose: composeInput };

const verbs = defineResourceVerbs({
  name: 'schedules',
  fields: SCHEDULE_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    ENDPOINT: ({ endpointName }) => endpointName,
    WHEN: describeWhen,
    STATUS: ({ status }) => status,
    'NEXT TICK': ({ nextTicks }) => nextTicks[0] ?? '',
    'LAST TICK': describeLast,
    JOBS: ({ jobs }) => String(jobs),
    SKIPPED: ({ skipped }) => String(skipped.missed + skipped.overlap + skipped.queue_full),
  },
  create: {
    ...body,
    examples: [
      `millrace schedules create --name nightly --endpoint echo --cron '30 2 * * *' --input '{"a":1}'`,
      'millrace schedules create --name warm --endpoint echo --every 300000 --overlap skip',
    ],
  },
  update: {
    ...body,
    effect:
      'If the time of a tick changes, the next tick is the first one from now on. To change --cron to --every, set the other to null in --file.',
    examples: ['millrace schedules update nightly --cron "0 3 * * *"'],
  },
});

function describeWhen({ at, cron, every, phase, timeZone }: ScheduleRecord): string {
  if (cron !== null) return `${cron} (${timeZone})`;
  if (every !== null) return `every ${every} ms${phase > 0 ? ` + ${phase}` : ''}`;
  return `at ${at}`;
}

function describeLast({ lastTicks: [last] }: ScheduleRecord): string {
  return last ? `${last.at} ${last.skipped ?? 'job'}` : '';
}

/** Sets whether the schedule is paused. */
function definePause(paused: boolean): Verb {
  const [verb, effect] = paused
    ? ['pause', 'stops the ticks of one schedule']
    : ['resume', 'continues a paused schedule; the ticks of the pause are not made up for'];
  return defineApiVerb({
    summary: effect,
    id: 'schedule ID or name',
    options: {},
    examples: [`millrace schedules ${verb} nightly`],
    act: async ({ caller, id, json }) =>
      showRecord(await connectSchedules(caller).update(id, { paused }), json),
  });
}

const { at, cron, every, phase, timeZone, until } = SCHEDULE_FIELDS;
const TIMING = { cron, timeZone, every, phase, at, until };

export const schedulesCommands: CommandGroup = {
  name: 'millrace schedules',
  description: [
    'A schedule makes jobs of an endpoint: by a cron expression in a time zone, at an interval, or once at a given time.',
    'Each tick makes exactly one job, or counts as skipped.',
  ],
  verbs: {
    ...verbs,
    pause: definePause(true),
    resume: definePause(false),
    trigger: defineApiVerb({
      summary: 'makes a job of one schedule now and prints its ID',
      id: 'schedule ID or name',
      options: {},
      examples: ['millrace schedules trigger nightly'],
      act: async ({ caller, id, json }) => {
        const made = await connectSchedules(caller).trigger(id);
        return json ? showRecord(made, true) : made.jobId;
      },
    }),
    next: defineApiVerb({
      summary: 'prints the next five ticks of one schedule',
      id: 'schedule ID or name',
      options: {},
      examples: ['millrace schedules next nightly'],
      act: async ({ caller, id, json }) => {
        const { nextTicks } = await connectSchedules(caller).get(id);
        return showTicks(nextTicks, json);
      },
    }),
    preview: defineApiVerb({
      summary: 'prints the next five ticks that a schedule would have, and creates none',
      options: fieldOptions(TIMING, 'create'),
      examples: ['millrace schedules preview --cron "30 2 * * *" --time-zone Europe/Berlin'],
      act: async ({ caller, json, values }) => showTicks(await preview(caller, values), json),
    }),
    delete: defineDeletion('schedules', '; its jobs stay'),
  },
  examples: [
    `millrace schedules create --name nightly --endpoint echo --cron '30 2 * * *' --time-zone Europe/Berlin`,
    'millrace schedules list',
  ],
};

async function preview(
  caller: ApiCaller,
  values: Readonly<Record<string, unknown>>,
): Promise<string[]> {
  const given = Object.entries(readFields(TIMING, values));
  const timing = Object.fromEntries(given.filter(([, value]) => value !== undefined));
  return (await connectSchedules(caller).preview(timing)).nextTicks;
}

function showTicks(nextTicks: readonly string[], json: boolean): string {
  if (json) return showRecord({ nextTicks }, true);
  return nextTicks.length > 0 ? nextTicks.join('\n') : 'no ticks';
}
