// Selects for what the platform has: GPU types, network volumes, templates, data centers, endpoints, shared limits.
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';

interface Choice {
  id: string;
  name: string;
}

const MOST = { limit: 1_000 };

const LISTS = {
  gpus: {
    isAllowed: () => may('endpoints:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.catalog.gpus.page({ ...MOST, signal })).items.map(({ id }) => ({
        id,
        name: id,
      })),
  },
  networkVolumes: {
    isAllowed: () => may('pods:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.networkVolumes.page({ ...MOST, signal })).items,
  },
  templates: {
    isAllowed: () => may('endpoints:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.templates.page({ ...MOST, signal })).items,
  },
  /** Those in which network volumes can be created. */
  dataCenters: {
    isAllowed: () => may('endpoints:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.catalog.dataCenters.page({ ...MOST, signal })).items.filter(
        ({ networkVolumes }) => networkVolumes,
      ),
  },
  sharedLimits: {
    isAllowed: () => may('endpoints:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.sharedLimits.page({ ...MOST, signal })).items,
  },
  endpoints: {
    isAllowed: () => may('endpoints:read'),
    load: async (signal: AbortSignal): Promise<Choice[]> =>
      (await platform.endpoints.page({ ...MOST, signal })).items,
  },
} as const;
type ChoiceList = keyof typeof LISTS;

/** The list is not loaded yet. The select is there already, so that nobody types into a field that vanishes. */
export const LOADING: readonly Choice[] = [];

/** Returns undefined if the key may not read the list, or if it cannot be loaded. */
export function useChoices(list: ChoiceList | undefined): readonly Choice[] | undefined {
  const isAllowed = list !== undefined && LISTS[list].isAllowed();
  const { data, error } = usePolled({
    key: `choices ${list}`,
    load: async (signal) => (isAllowed ? await LISTS[list].load(signal) : undefined),
    everyMs: null,
  });
  return data ?? (isAllowed && !error ? LOADING : undefined);
}

interface ChoiceSelectProps {
  choices: readonly Choice[];
  name: string;
  /** Label of the empty choice. If it is missing, a choice is required. */
  none?: string | undefined;
  value?: string | undefined;
  id?: string;
  'aria-describedby'?: string | undefined;
  'aria-label'?: string;
}

export function ChoiceSelect({ choices, none, value = '', ...given }: ChoiceSelectProps) {
  // The current value stays a choice, even if the platform no longer has it.
  const isGone = value !== '' && !choices.some(({ id }) => id === value);
  return (
    <select {...given} required={none === undefined}>
      {(none !== undefined || value === '') && <option value="">{none ?? 'Choose…'}</option>}
      {isGone && (
        <option value={value} selected>
          {value}
        </option>
      )}
      {choices.map(({ id, name }) => (
        <option key={id} value={id} selected={id === value}>
          {name}
        </option>
      ))}
    </select>
  );
}

const ORDER = ['First', 'Second', 'Third'];

/** Texts of the selects of a list. */
const LIST_TEXTS = {
  gpus: { none: 'No GPU', noun: 'GPU type', empty: 'The catalog has no GPU types' },
  sharedLimits: { none: 'None', noun: 'shared limit', empty: 'You have no shared limits' },
} as const;

interface ListSelectsProps extends ChoiceSelectProps {
  value: string;
  list: ChoiceList | undefined;
  /** Most elements. */
  most: number;
}

/** One select for each element of a list, in their order. All have the same field name. */
export function ListSelects({ choices, list, most, name, value, ...ids }: ListSelectsProps) {
  const { empty, none, noun } = LIST_TEXTS[list === 'sharedLimits' ? list : 'gpus'];
  if (choices === LOADING) return <ChoiceSelect {...{ ...ids, choices, name, value, none }} />;
  const set = value === '' ? [] : value.split(', ');
  const offered = list === 'gpus' ? ORDER.length : most;
  const count = Math.max(set.length, Math.min(choices.length, offered));
  if (count === 0) return <output {...ids}>{empty}</output>;
  return (
    <span class="selects">
      {Array.from({ length: count }, (_, index) => (
        <ChoiceSelect
          key={ORDER[index] ?? index}
          {...(index === 0 ? ids : { 'aria-label': `${ORDER[index] ?? 'Further'} ${noun}` })}
          {...{ choices, name, value: set[index] }}
          none={index === 0 ? none : '–'}
        />
      ))}
    </span>
  );
}
