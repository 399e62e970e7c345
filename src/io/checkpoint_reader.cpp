// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_reader.hpp"

#include "checkpoint_parts.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace coeus {

using namespace checkpoint_format;

namespace {

/// "layers.0.attention.wq.weight" for "model/layers.0.attention.wq.weight".
std::string parameter_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

void require_shape(const std::string& path, const CheckpointTensor& tensor, const Shape& stored) {
    if (stored != tensor.shape)
        throw ConfigError("{} is of another model: {} is {} in the file, {} in this model", path,
                          parameter_of(tensor.path), stored.text(), tensor.shape.text());
}

/// ConfigError unless the file has exactly the weights that are asked for, and all other arrays that are
/// asked for.
void check_model(const std::string& path, const CheckpointHeader& header,
                 const std::vector<CheckpointTensor>& tensors, const LeftOut& left_out) {
    std::map<std::string, const CheckpointHeader::Array*> there;
    for (const auto& array : header.arrays) there[array.path] = &array;
    const CheckpointTensor* absent_state = nullptr;  // of the optimizer: a difference of models is told first
    for (const CheckpointTensor& tensor : tensors) {
        const auto found = there.find(tensor.path);
        if (found == there.end() && tensor.path.starts_with("optimizer/")) {
            if (!absent_state) absent_state = &tensor;
            continue;
        }
        if (found == there.end())
            throw ConfigError("{} is of another model: it has no {}, which this model has", path,
                              tensor.path);
        const auto& array = *found->second;
        require_shape(path, tensor, array.shape);
        const auto stored = tensor_type(array.type);
        if (!stored || !can_convert(tensor.dtype, *stored))
            throw ConfigError("{}: {} has elements of type {}, but a floating-point type is expected", path,
                              tensor.path, hdf5::name_of(array.type));
        there.erase(found);
    }
    for (const auto& [name, array] : there) {
        if (!name.starts_with("model/") || (left_out && left_out(name))) continue;
        if (name.ends_with(".moe.expert_bias"))
            throw ConfigError(
                "{} has biases that balance the experts ({}), which this model does not have: set "
                "model.moe.load_balance_coeff to the rate of the run that wrote it (0.001 unless its deck "
                "gave "
                "another)",
                path, parameter_of(name));
        throw ConfigError("{} is of another model: it has {}, which this model does not have", path,
                          parameter_of(name));
    }
    if (absent_state && !header.full)
        throw ConfigError(
            "{} has only weights, without the optimizer state: a run can start from it "
            "(checkpoint.initial_load_path), but not resume from it",
            path);
    if (absent_state)
        throw ConfigError(
            "{} is of the same model, but of another optimizer, other optimizer.param_groups or other frozen "
            "parameters (model.frozen): it has no {}, which this run's optimizer needs. To continue with its "
            "weights and a new state of the optimizer, set "
            "checkpoint.exclude_from_loading = \"optimizer,lr_scheduler\"",
            path, absent_state->path);
}

/// ConfigError if the elements of an array are not contiguous in the file: HDF5 could read them, but each
/// rank could not read only its own.
void require_contiguous(const hdf5::File& file, const std::vector<CheckpointTensor>& tensors) {
    for (const CheckpointTensor& tensor : tensors)
        if (tensor.shape.count() > 0 && !file.dataset(tensor.path).offset())
            throw ConfigError(
                "{}: {} is chunked, compressed or in an external file, so its elements are not contiguous; "
                "`h5repack -l CONTI -f NONE {} NEW.h5` makes a file that can be loaded",
                file.file(), tensor.path, file.file());
}

/// Finds places and checksums of the arrays. ConfigError if the file is damaged.
void find_places(CheckpointContents& contents, const hdf5::File& file,
                 const std::vector<CheckpointTensor>& tensors) {
    const std::string& path = file.file();
    std::map<std::string, int64_t> number_of, bytes_of;
    for (const CheckpointTensor& tensor : tensors) {
        const hdf5::Dataset elements = file.dataset(tensor.path);
        const hdf5::Dataset checksums = file.dataset(checksum_path(tensor.path));
        CheckpointContents::Array& array = contents.arrays.emplace_back();
        const std::string stored_in = elements.stored_in();
        if (const auto [at, is_new] = number_of.try_emplace(stored_in, int64_t(number_of.size())); is_new) {
            contents.files.push_back(stored_in);
            bytes_of[stored_in] = RawFile::open(stored_in).size();
        }
        array.file = number_of[stored_in];
        array.elements = elements.offset().value_or(-1);
        array.type = *tensor_type(elements.type());
        array.shape = elements.shape();
        array.block_rows = checksums.int_attribute(block_rows_attribute);
        if (const int64_t bytes = bytes_of[stored_in];
            array.elements > bytes - array.shape.count() * size_of(array.type))
            throw ConfigError("{} is damaged: {} would end beyond the {} bytes of {}", path, tensor.path,
                              bytes, stored_in);
        if (!checksums_fit(array.shape, checksums.shape(), array.block_rows))
            throw ConfigError("{}: the checksums of {} do not fit it", path, tensor.path);
        array.block_rows = std::min(array.block_rows, std::max(array.shape.rows(), int64_t(1)));
        const auto sums = checksums.read_all<uint64_t>();
        contents.sums.insert(contents.sums.end(), sums.begin(), sums.end());
    }
}

/// Calls `look`, which examines a file. Returns the text of its error if the bytes of the file are wrong,
/// else "".
template <class Look>
std::string damage_found_by(const Look& look) {
    try {
        look();
        return "";
    } catch (const PermissionError& error) {
        throw ReadError(error.what());
    } catch (const ConfigError& error) {
        return error.what();
    } catch (const ReadError&) {  // the bytes could not be read, and may be intact
        throw;
    } catch (const SystemError& error) {  // a call of HDF5 failed
        return error.what();
    }
}

CheckpointContents look_into(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                             const LeftOut& left_out) {
    CheckpointContents contents;
    CheckpointHeader header;
    contents.damage = damage_found_by([&] { header = read_checkpoint_header(path); });
    if (!contents.damage.empty()) return contents;
    check_model(path, header, tensors, left_out);
    const hdf5::File file = open_with_parts(path, header.parts.size());
    require_contiguous(file, tensors);
    contents.train = header.train;
    contents.damage = damage_found_by([&] { find_places(contents, file, tensors); });
    return contents;
}

// Rank 0 packs the fields into one text, from which the other ranks unpack them in the same order.
struct Packer {
    std::string text;
    void number(int64_t& n) { text.append(reinterpret_cast<const char*>(&n), sizeof n); }
    void number(std::optional<int64_t>& n) {
        auto there = int64_t(n.has_value()), value = n.value_or(0);
        number(there);
        number(value);
    }
    void words(std::string& s) {
        auto length = int64_t(s.size());
        number(length);
        text += s;
    }
};

struct Unpacker {
    const std::string& text;
    size_t at = 0;
    void number(int64_t& n) {
        std::memcpy(&n, text.data() + at, sizeof n);
        at += sizeof n;
    }
    void number(std::optional<int64_t>& n) {
        int64_t there = 0, value = 0;
        number(there);
        number(value);
        if (there != 0) n = value;
    }
    void words(std::string& s) {
        int64_t length = 0;
        number(length);
        s = text.substr(at, size_t(length));
        at += size_t(length);
    }
};

template <class Pack>
void for_each_field(CheckpointContents& contents, Pack& pack) {
    TrainRecord& train = contents.train;
    for (int64_t* n : {&train.step, &train.tokens_seen, &train.seed, &train.sample}) pack.number(*n);
    pack.number(train.schedule_step);
    pack.number(train.optimizer_step);
    auto validation_is_left = int64_t(train.validation_is_left);
    pack.number(validation_is_left);
    train.validation_is_left = validation_is_left != 0;
    for (std::string* s : {&train.deck, &train.version, &train.model, &train.guards, &contents.damage})
        pack.words(*s);
    auto files = int64_t(contents.files.size()), arrays = int64_t(contents.arrays.size());
    pack.number(files);
    pack.number(arrays);
    contents.files.resize(size_t(files));
    contents.arrays.resize(size_t(arrays));
    for (std::string& file : contents.files) pack.words(file);
    for (CheckpointContents::Array& array : contents.arrays) {
        auto type = int64_t(array.type), rank = int64_t(array.shape.rank);
        for (int64_t* n : {&array.file, &array.elements, &array.block_rows, &type, &rank}) pack.number(*n);
        for (int64_t& extent : array.shape.d) pack.number(extent);
        array.type = Dtype(type);
        array.shape.rank = int(rank);
    }
}

void broadcast(CheckpointContents& contents, const Communicator& ranks) {
    Packer packer;
    if (ranks.rank() == 0) for_each_field(contents, packer);
    const std::string text = broadcast_text(ranks, packer.text);
    if (ranks.rank() == 0) return;
    Unpacker unpacker{text};
    for_each_field(contents, unpacker);
}

/// Bytes that the disk is asked to read ahead. Without it, the disk is idle while a rank computes sums, and
/// the system's own read-ahead starts again at each array, which is four times slower.
constexpr int64_t prefetched_bytes = int64_t(64) << 20;

/// Reads elements of files into the blocks of a rank, in the type of the blocks.
struct Reader {
    const CheckpointContents& contents;
    std::vector<std::optional<RawFile>> files = std::vector<std::optional<RawFile>>(contents.files.size());
    std::vector<std::byte> staging = {}, landing = {};

    const RawFile& file_of(const CheckpointContents::Array& array) {
        std::optional<RawFile>& file = files[size_t(array.file)];
        if (!file) file = RawFile::open(contents.files[size_t(array.file)]);
        return *file;
    }

    /// Asks the disk to read the rows of a tensor ahead, unless the tensor has only parts of the rows.
    /// Returns the bytes that were asked for.
    int64_t prefetch(const CheckpointTensor& tensor, const CheckpointContents::Array& array) {
        const int64_t row_bytes = array.shape.cols() * size_of(array.type);
        int64_t asked = 0;
        for (const HeldBlock& block : tensor.blocks) {
            if (block.local.cols() != array.shape.cols()) continue;
            const int64_t bytes = std::min(prefetched_bytes - asked, block.local.rows() * row_bytes);
            if (bytes > 0) file_of(array).prefetch(bytes, array.elements + block.first_row * row_bytes);
            asked += bytes;
        }
        return asked;
    }

    /// Reads a block of rows and columns to `to`, dense and in the stored type.
    void read(std::byte* to, const CheckpointContents::Array& array, int64_t first_row, int64_t rows,
              int64_t first_col, int64_t cols) {
        const RawFile& file = file_of(array);
        const int64_t bytes = size_of(array.type), row_bytes = array.shape.cols() * bytes;
        const int64_t place = array.elements + first_row * row_bytes + first_col * bytes;
        if (cols == array.shape.cols()) return file.read(to, rows * row_bytes, place);
        for (int64_t r = 0; r < rows; ++r)
            file.read(to + r * cols * bytes, cols * bytes, place + r * row_bytes);
    }

    /// Reads the tensor's part of an array, and adds the sums of its share.
    void read(const CheckpointTensor& tensor, const CheckpointContents::Array& array, Rows share,
              BlockSums& sums) {
        for (const HeldBlock& block : tensor.blocks) {
            read(block, *tensor.device, array, share, sums);
            share.first -= block.local.rows();
        }
    }

    /// The same for one block. The rows of `share` are counted from the first row of the block.
    void read(const HeldBlock& block, const Device& device, const CheckpointContents::Array& array,
              Rows share, BlockSums& sums) {
        const int64_t bytes = size_of(array.type), cols = block.local.cols();
        const int64_t step = rows_at_a_time(cols * bytes);
        for (int64_t first = 0; first < block.local.rows(); first += step) {
            const int64_t count = std::min(step, block.local.rows() - first);
            const Tensor there = block.local.slice_rows(first, count);
            const Tensor rows = device.is_host() ? there : landing_for(there);
            const bool in_place = rows.dense() && rows.dtype == array.type;
            if (!in_place) staging.resize(size_t(count * cols * bytes));
            std::byte* const stored = in_place ? static_cast<std::byte*>(rows.data) : staging.data();
            read(stored, array, block.first_row + first, count, block.first_col, cols);
            const int64_t begin = std::max(first, share.first),
                          end = std::min(first + count, share.first + share.count);
            if (begin < end)
                sums.add(stored + (begin - first) * cols * bytes, bytes, block.first_row + begin,
                         block.first_col, end - begin, cols);
            for (int64_t r = 0; r < count && !in_place; ++r)
                convert_elements(rows.slice_rows(r, 1).data, rows.dtype, stored + r * cols * bytes,
                                 array.type, cols);
            if (rows.data != there.data) device.copy(there.data, rows.data, rows.bytes());
        }
    }

    /// Rows in host memory, through which rows of a device are read.
    Tensor landing_for(Tensor rows) {
        require(rows.dense(), "rows of a device are adjacent");
        landing.resize(size_t(rows.bytes()));
        return Tensor(landing.data(), rows.dtype, rows.shape);
    }
};

}  // namespace

std::string may_be_good(const std::string& why) {
    return why + ". It may be intact: make it readable, or move it away to start from an earlier checkpoint";
}

CheckpointContents find_arrays(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                               const Communicator& ranks, const LeftOut& left_out) {
    CheckpointContents contents;
    on_first_rank(ranks, [&] {
        try {
            contents = look_into(path, tensors, left_out);
        } catch (const ReadError& error) {
            throw SystemError(may_be_good(error.what()));
        }
    });
    broadcast(contents, ranks);
    return contents;
}

std::vector<uint64_t> read_arrays(const CheckpointContents& contents,
                                  const std::vector<CheckpointTensor>& tensors) {
    require(tensors.size() == contents.arrays.size(), "all ranks ask for the same arrays");
    Reader reader{contents};
    std::vector<uint64_t> all;
    int64_t asked_bytes = 0, read_bytes = 0;
    for (size_t i = 0, asked = 0; i < tensors.size(); ++i) {
        for (; asked < tensors.size() && asked_bytes <= read_bytes + prefetched_bytes; ++asked)
            asked_bytes += reader.prefetch(tensors[asked], contents.arrays[asked]);
        read_bytes += tensors[i].count() * size_of(contents.arrays[i].type);
        require_shape(contents.files.at(0), tensors[i], contents.arrays[i].shape);
        BlockSums sums(tensors[i].shape, contents.arrays[i].block_rows);
        reader.read(tensors[i], contents.arrays[i], share_of(tensors[i], i), sums);
        all.insert(all.end(), sums.sums().begin(), sums.sums().end());
    }
    return all;
}

}  // namespace coeus
