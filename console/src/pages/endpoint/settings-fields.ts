// The settings of an endpoint that a form shows: where each is in the record, and the change that a form asks for.
import type { EndpointChange, EndpointRecord } from '../../../../src/client.ts';
import type { ChoiceList } from '../../parts/forms/choices.tsx';

type Value = string | number | null;

export interface Setting {
  /** Of the form's field. */
  name: string;
  label: string;
  help: string;
  kind: 'number' | 'text';
  choices?: ChoiceList;
  min?: number;
  max?: number;
  /** An empty field means null. */
  isOptional?: boolean;
  isShown?: (endpoint: EndpointRecord) => boolean;
  read: (endpoint: EndpointRecord) => Value;
  /** The change that sets the value. */
  write: (value: Value) => EndpointChange;
}

interface SettingGroup {
  name: string;
  settings: readonly Setting[];
  isShown?: (endpoint: EndpointRecord) => boolean;
}

const MS = 1_000;

/** A record has its timeouts in ms; people read seconds. */
function number(
  key: 'workersMin' | 'workersMax' | 'idleTimeout' | 'maxAttempts' | 'maxQueued',
  texts: Pick<Setting, 'label' | 'help'>,
  bounds: Pick<Setting, 'min' | 'max'>,
): Setting {
  return {
    ...{ name: key, kind: 'number', ...texts, ...bounds },
    read: (endpoint) => endpoint[key],
    write: (value) => ({ [key]: Number(value) }),
  };
}

const isManaged = ({ templateId }: EndpointRecord) => templateId !== null;

export const GROUPS: readonly SettingGroup[] = [
  {
    name: 'Workers',
    isShown: isManaged,
    settings: [
      number(
        'workersMin',
        { label: 'Minimum', help: 'Workers that run even without load' },
        { min: 0, max: 1_000 },
      ),
      number(
        'workersMax',
        { label: 'Maximum', help: '0 switches the endpoint off' },
        { min: 0, max: 1_000 },
      ),
      number(
        'idleTimeout',
        { label: 'Idle timeout, s', help: 'An idle worker stops after this time' },
        { min: 1, max: 86_400 },
      ),
      {
        ...{ name: 'gpuTypeIds', kind: 'text', isOptional: true },
        label: 'GPU types',
        choices: 'gpus',
        help: 'In order of preference',
        read: ({ gpuTypeIds }) => gpuTypeIds.join(', '),
        write: (value) => ({ gpuTypeIds: splitList(String(value ?? '')) }),
      },
      {
        ...{ name: 'networkVolumeId', kind: 'text', isOptional: true },
        label: 'Network volume',
        choices: 'volumes',
        help: 'All workers mount it. A change replaces the workers',
        read: ({ networkVolumeId }) => networkVolumeId,
        write: (value) => ({ networkVolumeId: value === null ? null : String(value) }),
      },
      {
        ...{ name: 'networkVolumePath', kind: 'text' },
        label: 'Volume path',
        help: 'Where workers mount the network volume',
        read: ({ networkVolumePath }) => networkVolumePath,
        write: (value) => ({ networkVolumePath: String(value ?? '') }),
      },
      {
        ...{ name: 'delaySeconds', kind: 'number', min: 1, max: 3_600 },
        label: 'Queue delay, s',
        help: 'If a job waits longer, the platform adds a worker',
        isShown: ({ scaler }) => scaler.type === 'QUEUE_DELAY',
        read: ({ scaler }) => (scaler.type === 'QUEUE_DELAY' ? scaler.seconds : null),
        write: (value) => ({ scaler: { type: 'QUEUE_DELAY', seconds: Number(value) } }),
      },
      {
        ...{ name: 'perWorker', kind: 'number', min: 1, max: 100_000 },
        label: 'Requests per worker',
        help: 'Jobs or open requests for one worker',
        isShown: ({ scaler }) => scaler.type === 'REQUEST_COUNT',
        read: ({ scaler }) => (scaler.type === 'REQUEST_COUNT' ? scaler.perWorker : null),
        write: (value) => ({ scaler: { type: 'REQUEST_COUNT', perWorker: Number(value) } }),
      },
    ],
  },
  {
    name: 'Jobs',
    settings: [
      {
        ...{ name: 'executionTimeout', kind: 'number', min: 1, max: 604_800 },
        label: 'Execution timeout, s',
        help: 'Default for the longest run of an attempt',
        read: ({ executionTimeout }) => executionTimeout / MS,
        write: (value) => ({ executionTimeout: Number(value) * MS }),
      },
      number(
        'maxAttempts',
        { label: 'Attempts', help: 'Failed attempts after which a job is FAILED' },
        { min: 1, max: 100 },
      ),
      number(
        'maxQueued',
        { label: 'Queue length', help: 'With more waiting jobs, the endpoint rejects new ones' },
        { min: 1 },
      ),
      {
        ...{ name: 'groupConcurrency', kind: 'number', min: 1, isOptional: true },
        label: 'Jobs of a group',
        help: 'Most jobs of one group that run at once; empty: any number',
        read: ({ groupConcurrency }) => groupConcurrency,
        write: (value) => ({ groupConcurrency: value === null ? null : Number(value) }),
      },
    ],
  },
];

/** The members that differ from the record. */
export function readChange(form: FormData, endpoint: EndpointRecord): EndpointChange {
  const changes = GROUPS.flatMap(({ settings }) => settings)
    .filter(({ name }) => form.has(name))
    .flatMap(({ name, read, write }) => {
      const typed = form
        .getAll(name)
        .map((value) => String(value).trim())
        .filter((value) => value !== '')
        .join(', ');
      const isSame = typed === String(read(endpoint) ?? '');
      return isSame ? [] : [write(typed === '' ? null : typed)];
    });
  return Object.assign({}, ...changes);
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}
