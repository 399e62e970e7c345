// SPDX-License-Identifier: Apache-2.0
// The only file that includes Arrow's headers.
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "parquet.hpp"

#include <algorithm>
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <numeric>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>
#include <string_view>
#include <utility>
#include <vector>

namespace coeus {

namespace {

constexpr int64_t rows_at_a_time = 1024;

// A text of a JSON object. Bytes that are not UTF-8 stay, and are judged later.
void append_quoted(std::string& to, std::string_view text) {
    to += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\')
            (to += '\\') += c;
        else if (uint8_t(c) < 0x20)
            to += fmt::format("\\u{:04x}", uint8_t(c));
        else
            to += c;
    }
    to += '"';
}

bool is_text(const arrow::DataType& type) {
    switch (type.id()) {
        case arrow::Type::STRING:
        case arrow::Type::LARGE_STRING:
        case arrow::Type::STRING_VIEW: return true;
        case arrow::Type::DICTIONARY:
            return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
        default: return false;
    }
}

// The text of an element that is not null.
std::string_view text_at(const arrow::Array& array, int64_t i) {
    switch (array.type_id()) {
        case arrow::Type::STRING: return static_cast<const arrow::StringArray&>(array).GetView(i);
        case arrow::Type::LARGE_STRING: return static_cast<const arrow::LargeStringArray&>(array).GetView(i);
        case arrow::Type::STRING_VIEW: return static_cast<const arrow::StringViewArray&>(array).GetView(i);
        case arrow::Type::DICTIONARY: {
            const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
            return text_at(*coded.dictionary(), coded.GetValueIndex(i));
        }
        default: throw LogicError("a field of text has elements of another type");
    }
}

class ParquetStream : public ByteStream {
public:
    ParquetStream(const std::string& path, const std::string& field)
        : path_(path), bytes_(size_patiently(path)) {
        append_quoted(key_, field);
        parquet::arrow::FileReaderBuilder builder;
        // in its own order, as they are needed: a whole row group need not fit into memory
        parquet::ReaderProperties properties;
        properties.enable_buffered_stream();
        const auto file = call([&] { return arrow::io::ReadableFile::Open(path); });
        check([&] { return builder.Open(file, properties); });
        parquet::ArrowReaderProperties reading;
        reading.set_batch_size(rows_at_a_time);
        reading.set_pre_buffer(false);
        builder.properties(reading);
        reader_ = call([&] { return builder.Build(); });
        std::shared_ptr<arrow::Schema> schema;
        check([&] { return reader_->GetSchema(&schema); });
        require_text(*schema, field);
        const auto metadata = reader_->parquet_reader()->metadata();
        std::vector<int> groups(size_t(metadata->num_row_groups()));
        std::iota(groups.begin(), groups.end(), 0);
        rows_ = metadata->num_rows();
        const int column = metadata->schema()->ColumnIndex(field);
        batches_ = call([&] { return reader_->GetRecordBatchReader(groups, {column}); });
    }

    size_t read(char* to, size_t size) override {
        while (taken_ == lines_.size() && fill()) continue;
        const size_t bytes = std::min(size, lines_.size() - taken_);
        lines_.copy(to, bytes, taken_);
        taken_ += bytes;
        return bytes;
    }
    int64_t position() const override {
        return rows_ == 0 ? bytes_ : int64_t(double(bytes_) * double(read_) / double(rows_));
    }

private:
    // Calls a function of Arrow. Its errors are those of the file.
    template <class Function>
    typename decltype(std::declval<const Function&>()())::ValueType call(const Function& function) const {
        try {
            auto result = function();
            if (result.ok()) return std::move(result).ValueUnsafe();
            refuse(result.status().ToString());
        } catch (const parquet::ParquetException& error) {
            refuse(error.what());
        }
    }
    template <class Function>
    void check(const Function& function) const {
        try {
            if (const arrow::Status status = function(); !status.ok()) refuse(status.ToString());
        } catch (const parquet::ParquetException& error) {
            refuse(error.what());
        }
    }
    [[noreturn]] void refuse(const std::string& reason) const {
        throw ConfigError("{}: cannot be read as Parquet: {}", path_, printable(reason));
    }

    void require_text(const arrow::Schema& schema, const std::string& field) const {
        int found = 0;
        for (const auto& one : schema.fields()) {
            if (one->name() != field) continue;
            ++found;
            if (!is_text(*one->type()))
                throw ConfigError("{}: the field \"{}\" is {}, not text; {}", path_, field,
                                  one->type()->ToString(), list_of(schema));
        }
        if (found != 1)
            throw ConfigError(
                "{}: has {} field \"{}\" at its top; {}; --field NAME (in a deck, "
                "training.text_field) reads the field of that name",
                path_, found == 0 ? "no" : "more than one", field, list_of(schema));
    }
    static std::string list_of(const arrow::Schema& schema) {
        std::vector<std::string> fields;
        for (const auto& one : schema.fields())
            fields.push_back(fmt::format("\"{}\" ({})", printable(one->name()), one->type()->ToString()));
        return fields.empty() ? "it has no fields" : "its fields are " + join(fields, ", ");
    }

    // Makes lines of the next rows; false after the last one.
    bool fill() {
        lines_.clear();
        taken_ = 0;
        const auto batch = call([&] { return batches_->Next(); });
        if (!batch) return false;
        const arrow::Array& texts = *batch->column(0);
        for (int64_t i = 0; i < texts.length(); ++i) {
            ((lines_ += '{') += key_) += ": ";
            if (texts.IsNull(i))
                lines_ += "null";
            else
                append_quoted(lines_, text_at(texts, i));
            lines_ += "}\n";
        }
        read_ += texts.length();
        return true;
    }

    std::string path_, key_, lines_;
    size_t taken_ = 0;  // of lines_
    int64_t bytes_, rows_ = 0, read_ = 0;
    std::unique_ptr<parquet::arrow::FileReader> reader_;
    std::shared_ptr<arrow::RecordBatchReader> batches_;
};

}  // namespace

bool reads_parquet() {
    return true;
}

std::unique_ptr<ByteStream> open_parquet(const std::string& path, const std::string& field) {
    return std::make_unique<ParquetStream>(path, field);
}

}  // namespace coeus
