// Text as it is: code, stacks, outputs. A long one scrolls by itself, also by keyboard.

export function Block({ label, look, text }: { text: string; label: string; look?: 'text' }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without it, the keyboard cannot scroll it.
    <section class="block-frame" aria-label={label} tabIndex={0}>
      <pre class={look}>{text}</pre>
    </section>
  );
}
