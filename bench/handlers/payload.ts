// Takes a text of any size, or gives one back: what is measured is what the platform needs for it.
interface Input {
  /** How much to give. */
  bytes?: number;
  text?: string;
}

export default async function payload({ input }: { input: Input }): Promise<string | number> {
  return input.bytes === undefined ? (input.text ?? '').length : 'x'.repeat(input.bytes);
}
