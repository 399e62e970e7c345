// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/tokens.hpp"

namespace coeus {

namespace {

// Notes a collective where someone observes.
class Observed {
public:
    Observed(Ctx& c, const char* name, const Tensor& all) : observer_(c.exec.observer) {
        if (!observer_) return;
        observer_->begin(name, 0, double(all.bytes()));
        observer_->operands({&all, 1});
    }
    ~Observed() {
        if (observer_) observer_->end();
    }
    Observed(const Observed&) = delete;
    Observed& operator=(const Observed&) = delete;

private:
    KernelObserver* observer_;
};

}  // namespace

Tensor gather_tokens(Ctx& c, Tensor x) {
    if (c.tp.size() == 1) return x;
    const Tensor all = c.temp.alloc(x.dtype, {x.rows() * c.tp.size(), x.cols()});
    const Observed noted(c, "gather_tokens", all);
    c.tp.all_gather(all, x);
    return all;
}

Tensor parts_of(Ctx& c, Tensor y) {
    if (c.tp.size() == 1) return y;
    return c.temp.alloc(y.dtype, {y.rows() * c.tp.size(), y.cols()});
}

void scatter_tokens(Ctx& c, Tensor y, Tensor parts) {
    if (c.tp.size() == 1) return;
    const Observed noted(c, "scatter_tokens", parts);
    c.tp.reduce_scatter(y, parts);
}

}  // namespace coeus
