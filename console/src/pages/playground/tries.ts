// The last tries of an endpoint in this tab: kept in sessionStorage, which ends with the tab, and without any key.

export const MODES = ['stream', 'runsync', 'run'] as const;
export type Mode = (typeof MODES)[number];

export interface PastTry {
  jobId: string;
  mode: Mode;
  /** JSON text. */
  input: string;
  /** Unix ms. */
  at: number;
  status: string;
}

const MAX_TRIES = 20;
/** Larger inputs are not kept: a tab has about 5 MB. */
const MAX_INPUT_CHARACTERS = 20_000;

export function readTries(endpoint: string): PastTry[] {
  const found: unknown = parse(sessionStorage.getItem(keyOf('tries', endpoint)));
  return Array.isArray(found) ? found.filter(isTry) : [];
}

/** Adds a try, or replaces the one of the same job. */
export function keepTry(endpoint: string, tried: PastTry): PastTry[] {
  const others = readTries(endpoint).filter(({ jobId }) => jobId !== tried.jobId);
  const input = tried.input.length > MAX_INPUT_CHARACTERS ? '' : tried.input;
  const tries = [{ ...tried, input }, ...others].slice(0, MAX_TRIES);
  store(keyOf('tries', endpoint), JSON.stringify(tries));
  return tries;
}

/** The input that the playground starts with: the last one, or that of a job to run again. */
export function readDraft(endpoint: string): string | undefined {
  return sessionStorage.getItem(keyOf('draft', endpoint)) ?? undefined;
}

export function keepDraft(endpoint: string, input: string): void {
  store(keyOf('draft', endpoint), input);
}

function keyOf(kind: 'tries' | 'draft', endpoint: string): string {
  return `millrace-${kind}:${endpoint}`;
}

/** A full storage loses the history, nothing else. */
function store(key: string, text: string): void {
  try {
    sessionStorage.setItem(key, text);
  } catch {
    sessionStorage.removeItem(key);
  }
}

function parse(text: string | null): unknown {
  try {
    return JSON.parse(text ?? 'null');
  } catch {
    return null;
  }
}

function isTry(value: unknown): value is PastTry {
  return (
    typeof value === 'object' &&
    value !== null &&
    'jobId' in value &&
    typeof value.jobId === 'string' &&
    'input' in value &&
    typeof value.input === 'string' &&
    'at' in value &&
    typeof value.at === 'number' &&
    'status' in value &&
    typeof value.status === 'string' &&
    'mode' in value &&
    MODES.some((mode) => mode === value.mode)
  );
}
