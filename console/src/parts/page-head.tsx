// The head of a page: where it is, its title, and what can be done with the whole of it.
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { hrefOf } from '../routing/location.ts';
import { Id } from './copy.tsx';

export interface Crumb {
  name: string;
  path: string;
}

interface PageHeadProps {
  title: string;
  /** Prefix of the browser tab's title. */
  tab?: string | undefined;
  /** ID, shown below the title. */
  id?: string | undefined;
  crumbs?: readonly Crumb[];
  /** Behind the title: a state. */
  badge?: ComponentChildren;
  /** Buttons. */
  children?: ComponentChildren;
}

export function PageHead({ badge, children, crumbs = [], id, tab, title }: PageHeadProps) {
  useEffect(() => {
    document.title = `${tab ? `${tab} · ` : ''}${title} · Millrace`;
  }, [tab, title]);
  return (
    <div class="page-head">
      {crumbs.length > 0 && (
        <nav aria-label="Breadcrumb">
          <ol>
            {crumbs.map(({ name, path }) => (
              <li key={path}>
                <a href={hrefOf(path)}>{name}</a>
              </li>
            ))}
          </ol>
        </nav>
      )}
      <div class="title">
        <h1>{title}</h1>
        {id !== undefined && id !== title && <Id id={id} />}
        {badge}
        {children && <div class="actions">{children}</div>}
      </div>
    </div>
  );
}

export interface Tab {
  name: string;
  path: string;
}

export function Tabs({ label, path, tabs }: { label: string; path: string; tabs: readonly Tab[] }) {
  return (
    <nav class="tabs" aria-label={label}>
      <ul>
        {tabs.map((tab) => (
          <li key={tab.path}>
            <a href={hrefOf(tab.path)} aria-current={tab.path === path ? 'page' : undefined}>
              {tab.name}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
