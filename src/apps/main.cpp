// SPDX-License-Identifier: Apache-2.0
#include "coeus/apps/run_program.hpp"

int main(int argc, char** argv) {
    return coeus::run_program(argc, argv);
}
