// Parses options that set several numbers by name: `pods=20,keys=5`.
import { UsageError } from '../options.ts';

interface NumberRange {
  min: number;
  max: number;
}

/** Returns the given numbers; the last one if a name is repeated. @throws UsageError naming the option */
export function readNumbers<Name extends string>(
  option: string,
  given: string,
  ranges: Readonly<Record<Name, NumberRange>>,
): Partial<Record<Name, number>> {
  const numbers: Partial<Record<Name, number>> = {};
  for (const part of given.split(',')) {
    const [, name = '', digits = ''] = /^\s*([A-Za-z]+)=(\d{1,9})\s*$/.exec(part) ?? [];
    const value = Number(digits);
    const known = listNames(ranges).find((each) => each === name);
    if (!known || value < ranges[known].min || value > ranges[known].max) {
      const forms = listNames(ranges).map(
        (each) => `${each}=${ranges[each].min}..${ranges[each].max}`,
      );
      const shown = JSON.stringify(part);
      throw new UsageError(
        `${option}: ${shown} is invalid; write one or more of ${forms.join(', ')}`,
      );
    }
    numbers[known] = value;
  }
  return numbers;
}

function listNames<Name extends string>(ranges: Readonly<Record<Name, NumberRange>>): Name[] {
  // The ranges are an object literal of this program, so their keys are exactly these names.
  return Object.keys(ranges) as Name[];
}
