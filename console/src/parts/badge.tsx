// A state as a word with a coloured dot: the word says it all, the colour helps to find it.

export type Tone = 'good' | 'warn' | 'bad' | 'busy' | 'plain';

export function Badge({
  text,
  title,
  tone,
}: {
  text: string;
  tone: Tone;
  title?: string | undefined;
}) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {text}
    </span>
  );
}
