// Light or dark: as the system says, or as the user chose in this browser.
import { createStore } from '../parts/store.ts';

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const STORAGE_KEY = 'millrace-theme';

export const theme = createStore<Theme>(readTheme());

function readTheme(): Theme {
  const stored = localStorage.getItem(STORAGE_KEY);
  return THEMES.find((known) => known === stored) ?? 'system';
}

export function applyTheme(): void {
  const chosen = theme.read();
  if (chosen === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = chosen;
}

export function chooseTheme(chosen: Theme): void {
  localStorage.setItem(STORAGE_KEY, chosen);
  theme.write(chosen);
  applyTheme();
}
