// Starts the console in the page.
import { render } from 'preact';
import './style/base.css';
import './style/layout.css';
import './style/parts.css';
import './style/output.css';
import { App } from './shell/app.tsx';
import { applyTheme } from './shell/theme.ts';

applyTheme();
const root = document.getElementById('app');
if (root) render(<App />, root);
