// The main navigation: the pages that the session's key may open, the theme, and sign-out.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useStore } from '../parts/store.ts';
import type { Session } from '../platform/session.ts';
import { signOut } from '../platform/sign-in.ts';
import { hrefOf } from '../routing/location.ts';
import { PAGE_GROUPS, type PageEntry } from './pages.ts';
import { SearchButton } from './search.tsx';
import { chooseTheme, THEMES, theme } from './theme.ts';

export function Navigation({ path, session }: { path: string; session: Session }) {
  const [isOpen, setOpen] = useState(false);
  const menu = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const closeOnEscape = ({ key }: KeyboardEvent) => {
      if (key !== 'Escape') return;
      setOpen(false);
      menu.current?.focus();
    };
    document.addEventListener('keydown', closeOnEscape);
    return () => document.removeEventListener('keydown', closeOnEscape);
  }, [isOpen]);
  const isCurrent = (entry: PageEntry) =>
    entry.path === '/'
      ? path === '/' || path.startsWith('/endpoints')
      : path.startsWith(entry.path);
  return (
    <header class={isOpen ? 'side open' : 'side'}>
      <div class="brand">
        <a href={hrefOf('/')}>
          <img src={hrefOf('/icon.svg')} alt="" width="22" height="22" />
          Millrace
        </a>
        <SearchButton />
        <button
          ref={menu}
          type="button"
          class="menu"
          aria-expanded={isOpen}
          aria-controls="navigation"
          onClick={() => setOpen(!isOpen)}
        >
          Menu
        </button>
      </div>
      <nav id="navigation" aria-label="Main">
        {PAGE_GROUPS.map(({ entries, name }) => (
          <Group key={name} name={name} entries={entries.filter(({ isShown }) => isShown())}>
            {(entry) => (
              <a
                href={hrefOf(entry.path)}
                aria-current={isCurrent(entry) ? 'page' : undefined}
                onClick={() => setOpen(false)}
              >
                {entry.name}
              </a>
            )}
          </Group>
        ))}
      </nav>
      <div class="account">
        <ThemeChoice />
        <p class="muted">
          {session.key ? session.key.name : 'No key needed'}
          <br />
          Millrace {session.platform.version}
        </p>
        {session.key && (
          <button type="button" class="quiet" onClick={() => void signOut()}>
            Sign out
          </button>
        )}
      </div>
    </header>
  );
}

interface GroupProps {
  name: string | undefined;
  entries: readonly PageEntry[];
  children: (entry: PageEntry) => ComponentChildren;
}

function Group({ children, entries, name }: GroupProps) {
  if (entries.length === 0) return null;
  return (
    <>
      {name && (
        <p class="group" aria-hidden="true">
          {name}
        </p>
      )}
      <ul aria-label={name}>
        {entries.map((entry) => (
          <li key={entry.path}>{children(entry)}</li>
        ))}
      </ul>
    </>
  );
}

function ThemeChoice() {
  const chosen = useStore(theme);
  return (
    <label class="theme">
      <span>Theme</span>
      <select
        value={chosen}
        onChange={({ currentTarget: { value } }) =>
          chooseTheme(THEMES.find((known) => known === value) ?? 'system')
        }
      >
        {THEMES.map((name) => (
          <option key={name} value={name}>
            {name[0]?.toUpperCase() + name.slice(1)}
          </option>
        ))}
      </select>
    </label>
  );
}
