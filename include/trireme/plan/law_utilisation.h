// SPDX-License-Identifier: MIT
// Laws of utilisation: MFU and HFU with the formula that counts the operations named, since two of them differ by more than
// most improvements do.
//
// Model FLOP utilisation counts the operations that a token needs, whatever is computed again; hardware utilisation counts
// those too (Chowdhery et al., "PaLM", 2022). Both against the peak without sparsity. A token takes 6 N operations, and with
// attention 12 L d s more (PaLM), of which a causal mask needs half.
#ifndef TRIREME_PLAN_LAW_UTILISATION_H
#define TRIREME_PLAN_LAW_UTILISATION_H

typedef enum tr_law_count { TR_LAW_COUNT_6N, TR_LAW_COUNT_PALM, TR_LAW_COUNT_CAUSAL } tr_law_count;
const char *tr_law_count_formula(tr_law_count count); // "6N + 12LdS"

// Operations of one token, forward and backward. N: parameters that a token uses.
double tr_law_token_flop(tr_law_count count, double params, double layers, double width, double sequence);
double tr_law_utilisation(double token_flop, double tokens_per_second, double devices, double peak);
// HFU / MFU when the forward pass of this share of the layers runs again: 1 + share / 3.
double tr_law_recompute_factor(double share);

#endif
