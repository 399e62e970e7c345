// SPDX-License-Identifier: Apache-2.0
// Operands of products in the forms of a recipe (kernels/quantization.hpp) while ranks divide them. A scale
// is that of the whole matrix: ranks that have parts of its rows or columns agree on the largest magnitude of
// each group. So the numbers in 8 bits do not depend on the mesh, nor on what is recomputed.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// The ranks that have the other rows and columns of a matrix.
struct Division {
    const Communicator &row_ranks, &other_row_ranks, &column_ranks;

    /// Rows are tokens of the micro-batch: context-parallel ranks have others. Tensor-parallel ranks have
    /// others too, or they have other columns.
    static Division tokens(const Ctx& c) { return {c.cp, c.tp, alone()}; }
    static Division columns_of_tokens(const Ctx& c) { return {c.cp, alone(), c.tp}; }
    static Division whole() { return {alone(), alone(), alone()}; }
};

/// t with room for the largest magnitudes of equally wide parts of its columns: bits i32[parts], which become
/// zero. The kernel that writes t finds them (kernels.hpp), and the functions below need not.
Tensor with_largest(Ctx& c, Tensor t, Tensor bits);

/// t with room in temp for its rounded rows (Tensor::rounded), codes or values, as operand_of_tokens() would
/// make them. The kernel that writes t writes them too, and operand_of_tokens() only returns them. t itself
/// if its rows are too long for the kernel. No rank may have other columns.
Tensor with_rounded_rows(Ctx& c, Tensor t);

/// x in a form, in temp; x itself in the compute type. `experts` (optional): the groups of its rows, whose
/// columns have scales of their own. The matrices of x[G,R,C] have, too.
Tensor in_form(Ctx& c, Tensor x, const Form& form, const Division& division, const Groups& experts = {});
/// The same, written to `q`, which has room for the scales.
void write_in_form(Ctx& c, Tensor q, Tensor x, const Form& form, const Division& division,
                   const Groups& experts = {});

/// x as an operand that this rank multiplies at once, in temp: as in_form(), or as its values if the
/// backend takes them.
Tensor as_operand(Ctx& c, Tensor x, const Form& form, const Division& division);
/// The same for given largest magnitudes.
Tensor as_operand(Ctx& c, Tensor x, const Form& form, Tensor largest);
/// Rows of tokens as an operand: in 8 bits if tensor-parallel ranks have other rows, since most layers gather
/// them, or in a backward that computes the weights' gradients later and keeps their operands.
Tensor operand_of_tokens(Ctx& c, Tensor x, const Form& form, const Division& division);

/// True if the GPU's products sum rows only, so that they need transposed codes of a matrix in this form if
/// they sum its columns.
bool multiplies_only_rows(const Ctx& c, const Form& form);
/// An operand of a product that sums its columns: as operand_of_tokens(), or transposed codes if the GPU's
/// products sum rows only (multiplies_only_rows()) and no tensor-parallel rank has other rows.
Operand operand_by_columns(Ctx& c, Tensor x, const Form& form, const Division& division);
/// The same for given largest magnitudes, of a matrix that no other rank needs: as as_operand().
Operand operand_by_columns(Ctx& c, Tensor x, const Form& form, Tensor largest);

/// A matrix as the operand of two products: of one that sums its rows, and of one that sums its columns.
struct TwoOperands {
    Tensor by_rows;
    Operand by_columns;
};
/// Tokens in a form for both products. One pass makes both, if they have one scale.
TwoOperands two_operands(Ctx& c, Tensor x, const Form& form, const Division& division);

/// True if operand_by_columns() returns transposed codes.
bool is_transposed_by_columns(const Ctx& c, const Form& form, const Division& division);
/// Writes them to t, and if x has one scale and `codes` is true also as they are: to temp, with the scale of
/// t.
Tensor write_transposed(Ctx& c, Tensor t, Tensor x, const Form& form, const Division& division, bool codes);

/// to = from, of the same type, shape and groups. `matrices`: see scale_shape().
void copy_with_scales(Ctx& c, Tensor to, Tensor from, int64_t matrices = 1);

/// d = op(a) op(b) + plus: gemm or scaled_gemm, whichever the operands' type needs.
void multiply(Ctx& c, Tensor d, Operand a, Operand b, Tensor plus = {}, bool fast = false);

}  // namespace coeus
