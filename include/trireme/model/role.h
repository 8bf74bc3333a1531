// SPDX-License-Identifier: MIT
// What a parameter is for: decides weight decay and, later, which structured optimizer applies.
#ifndef TRIREME_MODEL_ROLE_H
#define TRIREME_MODEL_ROLE_H

typedef enum tr_param_role { TR_ROLE_MATRIX, TR_ROLE_EMBEDDING, TR_ROLE_BIAS, TR_ROLE_NORM } tr_param_role;

#endif
