// The operator's bounds on what callers of the HTTP API may use: options, and the bounds made of them.
import { DEFAULT_BOUNDS, type HttpBounds } from '../api/bounds.ts';
import { integer, type OptionValues } from './options.ts';

const MB = 1_048_576;

interface BoundOption {
  min: number;
  max: number;
  placeholder: string;
  help: string;
}

function bound(name: keyof typeof DEFAULT_BOUNDS, { help, max, min, placeholder }: BoundOption) {
  const text = { placeholder, section: 'advanced', help } as const;
  return integer({ min, max, default: DEFAULT_BOUNDS[name], ...text });
}

export const httpBoundOptions = {
  maxBesideInputBytes: bound('maxBesideInputBytes', {
    ...{ min: 1_024, max: 20 * MB, placeholder: 'BYTES' },
    help: 'JSON of a run or runsync request beside its input',
  }),
};

export function readHttpBounds(values: OptionValues<typeof httpBoundOptions>): Partial<HttpBounds> {
  const { maxBesideInputBytes } = values;
  return { maxBesideInputBytes };
}
