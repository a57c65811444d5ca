"""`title` becomes `name`, one document after the other."""

from beanie import Document, iterative_migration


class Old(Document):
    title: str
    tag: str

    class Settings:
        name = "notes"


class New(Document):
    name: str
    tag: str

    class Settings:
        name = "notes"


class Forward:
    @iterative_migration()
    async def rename(self, input_document: Old, output_document: New) -> None:
        output_document.name = input_document.title


class Backward:
    @iterative_migration()
    async def rename(self, input_document: New, output_document: Old) -> None:
        output_document.title = input_document.name
