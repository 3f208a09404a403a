// Checks the numbers in an author's options.

/** Returns the value. @throws TypeError that names the option and its value */
export function checkNumber(
  name: string,
  value: number,
  { max, min }: { min: number; max: number },
): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new TypeError(`${name} must be a whole number from ${min} to ${max}, got ${value}`);
}
