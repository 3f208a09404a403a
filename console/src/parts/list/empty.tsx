// What a page shows instead of an empty list: what is missing, and the command that adds it.
import type { ComponentChildren } from 'preact';

interface EmptyProps {
  title: string;
  children?: ComponentChildren;
  /** A command for the terminal. */
  command?: string;
}

export function Empty({ children, command, title }: EmptyProps) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {command && <pre>{command}</pre>}
    </div>
  );
}
