// `millrace endpoints`: endpoints from the command line, why they have the workers that they have, and
// what a worker elsewhere has to know.
import { connectEndpoints } from '../../client/endpoints.ts';
import { ENDPOINT_TYPES } from '../../wire/resources/endpoint.ts';
import type { Command } from '../command.ts';
import { choice, flag, integer, list, type OptionValues, text, UsageError } from '../options.ts';
import { connectCaller } from './client-options.ts';
import { describeEnvironment, environmentOptions } from './endpoint-environment.ts';
import {
  createResourceActions,
  describeActions,
  type ResourceActions,
  type ResourceRequest,
  resourceOptions,
  runAction,
} from './resource-command.ts';
import { describeDecisions, explainDecisions } from './scaler-decisions.ts';

const options = {
  ...resourceOptions,
  name: text({ placeholder: 'NAME', help: 'name of the endpoint, 1 to 200 characters' }),
  template: text({ placeholder: 'ID', help: "template for the endpoint's workers" }),
  type: choice({
    choices: ENDPOINT_TYPES,
    placeholder: 'TYPE',
    help: `create: type, ${ENDPOINT_TYPES.join(' or ')}`,
  }),
  gpu: list({ placeholder: 'ID', help: 'GPU type of the workers, in order of preference' }),
  workersMin: integer({ min: 0, max: 1_000, help: 'fewest workers, also without load' }),
  workersMax: integer({ min: 0, max: 1_000, help: 'most workers' }),
  idleTimeout: integer({
    ...{ min: 1, max: 86_400, placeholder: 'S' },
    help: 'time after which an idle worker is stopped, s',
  }),
  queueDelay: integer({
    ...{ min: 1, max: 3_600, placeholder: 'S' },
    help: 'scaling: add a worker when a job waits longer than this, s',
  }),
  perWorker: integer({
    ...{ min: 1, max: 100_000, placeholder: 'N' },
    help: 'scaling: run one worker for each N jobs or requests',
  }),
  maxAttempts: integer({
    ...{ min: 1, max: 100 },
    help: 'failures after which a job is FAILED; create: default 3; 1: no automatic retry',
  }),
  explain: flag({ help: 'scaler: print the inputs of each decision' }),
  ...environmentOptions,
} as const;

type Values = OptionValues<typeof options>;

const verbs = createResourceActions<Values, 'endpoints'>({
  name: 'endpoints',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    TYPE: ({ type }) => type,
    WORKERS: ({ workersMax, workersMin }) => `${workersMin} to ${workersMax}`,
    SCALER: ({ scaler }) =>
      scaler.type === 'QUEUE_DELAY' ? `${scaler.seconds} s` : `${scaler.perWorker} each`,
    GPUS: ({ gpuTypeIds }) => gpuTypeIds.join(',') || '-',
    TEMPLATE: ({ templateId }) => templateId ?? '-',
  },
  readFlags,
  deletion: ', its workers, jobs and logs',
});

const actions: ResourceActions<Values> = {
  ...verbs,
  scaler: {
    ...{
      takes: 'id',
      help: 'print the last scaling decisions and their reasons; --explain adds the inputs',
    },
    act: showDecisions,
  },
  env: {
    ...{
      takes: 'id',
      help: 'print the environment of a worker that you start yourself, one variable a line',
    },
    act: showEnvironment,
  },
};

const { exitCodes, lines, positionals } = describeActions(actions, 'endpoint');

export const endpointsCommand: Command = {
  name: 'millrace endpoints',
  summary: 'create, list, update and delete endpoints; show scaling decisions',
  description: [
    'Calls a running platform, except for env.',
    ...lines,
    'env prints the format of `docker run --env-file`. Values may contain $ signs, so do not let a shell ' +
      'expand them. With --runpod the worker can be an unchanged RunPod image; run env again for each ' +
      'worker, because each needs its own RUNPOD_POD_ID.',
  ],
  positionals,
  options,
  examples: [
    'millrace endpoints create --name echo --template tpl_01912f4e-… --workers-max 4',
    'millrace endpoints scaler ep_01912f4e-… --explain --limit 5',
    'MILLRACE_KEY=mr_… millrace endpoints env image --runpod --url https://queue.example.com > worker.env',
  ],
  exitCodes,
  run: (args) => runAction({ options, actions, connect: connectCaller, args }),
};

async function showDecisions({ caller, id, values }: ResourceRequest<Values>): Promise<string> {
  const { cursor, explain, json, limit } = values;
  const page = await connectEndpoints(caller).decisions(id).page({ cursor, limit });
  const { items: decisions, ...rest } = page;
  if (json) return JSON.stringify({ decisions, ...rest });
  if (decisions.length === 0) return 'no decisions';
  const shown = explain ? explainDecisions(decisions) : describeDecisions(decisions);
  return page.cursor === undefined ? shown : `${shown}\nnext page: --cursor ${page.cursor}`;
}

async function showEnvironment({ id, values }: ResourceRequest<Values>): Promise<string> {
  const environment = describeEnvironment({ endpoint: id, ...values });
  if (values.json) return JSON.stringify(environment);
  return Object.entries(environment)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
}

function readFlags(values: Values): Record<string, unknown> {
  const { gpu, idleTimeout, maxAttempts, name, template: templateId, type } = values;
  const { workersMax, workersMin } = values;
  return {
    ...{ name, templateId, type, workersMin, workersMax, idleTimeout, maxAttempts },
    gpuTypeIds: gpu.length > 0 ? gpu : undefined,
    scaler: readScaler(values),
  };
}

function readScaler({ perWorker, queueDelay: seconds }: Values): object | undefined {
  if (perWorker === undefined) {
    return seconds === undefined ? undefined : { type: 'QUEUE_DELAY', seconds };
  }
  if (seconds === undefined) return { type: 'REQUEST_COUNT', perWorker };
  throw new UsageError('--queue-delay and --per-worker exclude each other; give one');
}
