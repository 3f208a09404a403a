// The filters above the job list.
import { useEffect, useState } from 'preact/hooks';
import { ERROR_CODES, JOB_STATUSES } from '../../../../src/wire/job/job.ts';
import { sayStatus } from '../../parts/job/job-status.ts';
import { type Filters, listRanges, RANGES, readFilters } from './filters.ts';

interface FilterBarProps {
  filters: Filters;
  onChange: (filters: Filters) => void;
}

/** The list is asked for anew when a person has paused typing, ms. */
const TYPING_PAUSE_MS = 300;

export function FilterBar({ filters, onChange }: FilterBarProps) {
  const set = (name: string, value: string) => {
    const query = new URLSearchParams(Object.entries(filters));
    query.set(name, value);
    onChange(readFilters(query));
  };
  return (
    <search class="filters">
      <TypedFilter
        label="Job ID"
        placeholder="Part of the ID (/)"
        type="search"
        value={filters.id}
        onChange={(value) => set('id', value)}
      />
      <Choice
        label="Status"
        value={filters.status}
        choices={JOB_STATUSES.map((status) => [status, sayStatus(status)])}
        onChange={(value) => set('status', value)}
      />
      <Choice
        label="Submitted"
        value={filters.range}
        choices={listRanges().map((range) => [range, RANGES[range].name])}
        onChange={(value) => set('range', value)}
      />
      <Choice
        label="Error"
        value={filters.error}
        choices={ERROR_CODES.map((code) => [code, code])}
        onChange={(value) => set('error', value)}
      />
      <TypedFilter
        label="Worker"
        placeholder="Worker ID"
        type="text"
        value={filters.worker}
        onChange={(value) => set('worker', value)}
      />
      <TypedFilter
        label="Tag"
        placeholder="Tag"
        type="text"
        value={filters.tag}
        onChange={(value) => set('tag', value)}
      />
    </search>
  );
}

interface TypedFilterProps {
  label: string;
  placeholder: string;
  type: 'search' | 'text';
  value: string | undefined;
  onChange: (value: string) => void;
}

function TypedFilter({ label, onChange, placeholder, type, value = '' }: TypedFilterProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => onChange(typed.trim()), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed, value, onChange]);
  const given = {
    'aria-label': label,
    placeholder,
    value: typed,
    onInput: ({ currentTarget }: { currentTarget: HTMLInputElement }) =>
      setTyped(currentTarget.value),
  };
  return type === 'search' ? <input type="search" {...given} /> : <input type="text" {...given} />;
}

interface ChoiceProps {
  label: string;
  value: string | undefined;
  choices: readonly (readonly [value: string, name: string])[];
  onChange: (value: string) => void;
}

function Choice({ choices, label, onChange, value = '' }: ChoiceProps) {
  return (
    <select
      aria-label={label}
      value={value}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
    >
      <option value="">{label}: any</option>
      {choices.map(([choice, name]) => (
        <option key={choice} value={choice}>
          {name}
        </option>
      ))}
    </select>
  );
}
